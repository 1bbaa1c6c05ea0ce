package show

import (
	"bytes"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// List is a `v1 List`, as kubectl prints it.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T             `json:"items"`
	Metadata        metav1.ListMeta `json:"metadata"`
}

// ListOf returns a list of items.
func ListOf[T any](items []T) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: items}
}

// Kind returns the type of one of deckhand's own objects in JSON.
func Kind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "deckhand.io/v1", Kind: kind}
}

// As writes a value as JSON or YAML, or only the fields that the format selects (see query). It returns false for other
// formats.
func As(w io.Writer, format string, value any) (bool, error) { return as(w, format, value, true) }

// as is like As, but custom columns have a heading only if header is set.
func as(w io.Writer, format string, value any, header bool) (bool, error) {
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
	q, ok, err := parseQuery(format)
	if !ok || err != nil {
		return ok, err
	}
	if !header {
		q.heading = nil
	}
	return true, q.write(w, value)
}

// marshal encodes a value as JSON and escapes control characters: a terminal would act on them, and YAML doesn't allow
// some of them.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	err := encoder.Encode(value)
	return terminal.JSON(text.Bytes()), err
}

// documents writes values as a stream of JSON or YAML documents.
func documents[T any](w io.Writer, format string, values []T, header bool) error {
	for i, v := range values {
		if format == "yaml" {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		if _, err := as(w, format, v, header && i == 0); err != nil {
			return err
		}
	}
	return nil
}
