package show

import (
	"bytes"
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// As writes a value as JSON or YAML. It reports false for other formats.
func As(w io.Writer, format string, value any) (bool, error) {
	switch format {
	case "json":
		text, err := marshal(value)
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	case "yaml":
		text, err := marshal(value)
		if err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	}
	return false, nil
}

// marshal returns a value as JSON without what would steer a terminal, some of which
// YAML, too, doesn't take as it is.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	err := encoder.Encode(value)
	return terminal.JSON(text.Bytes()), err
}

// documents writes values as a stream of JSON or YAML documents.
func documents[T any](w io.Writer, format string, values []T) error {
	for _, v := range values {
		if format == "yaml" {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		if _, err := As(w, format, v); err != nil {
			return err
		}
	}
	return nil
}
