// Package format prints values for machines.
package format

import (
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"
)

// As writes a value as JSON or YAML. It reports false for other formats.
func As(w io.Writer, format string, value any) (bool, error) {
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "    ")
		return true, encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	}
	return false, nil
}
