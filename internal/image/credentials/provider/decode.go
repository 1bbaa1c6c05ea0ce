package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

const (
	group = "kubelet.config.k8s.io"
	kind  = "CredentialProviderConfig"
)

// versions are those of the configuration; the older ones have no tokenAttributes.
func versions() []string { return []string{group + "/v1", group + "/v1beta1", group + "/v1alpha1"} }

// document is one file.
type document struct {
	config kubeletv1.CredentialProviderConfig
	root   *yaml.Node
}

// problem reports a field with its line, if the file gives it.
func (d *document) problem(path, text string) string {
	return yaml.Error{Line: yaml.LineOf(d.root, path), Path: path, Message: text}.Error()
}

// decode reads one file strictly. The document is nil if nothing can be said of
// its fields; otherwise the problems are those of fields that don't exist, are given twice or
// have to name the format.
func decode(data []byte) (*document, []string) {
	nodes, bad := yaml.Parse(data, 1, 2)
	switch {
	case bad != nil:
		return nil, []string{yaml.Explain(*bad, data).Error()}
	case len(nodes) == 0:
		return nil, []string{fmt.Sprintf("it is empty; it should start with \"apiVersion: %s\" and \"kind: %s\"",
			versions()[0], kind)}
	case len(nodes) > 1:
		return nil, []string{fmt.Sprintf("line %d: a second document begins here; the file must hold exactly one",
			nodes[1].Line)}
	}
	text, err := sigsyaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, []string{strings.Join(strings.Fields(err.Error()), " ")} // given twice, with lines
	}
	doc := &document{root: nodes[0]}
	strict, err := kjson.UnmarshalStrict(text, &doc.config)
	if err != nil {
		return nil, []string{wrongType(doc, err)}
	}
	var problems []string
	for _, e := range strict {
		var f kjson.FieldError
		if errors.As(e, &f) {
			problems = append(problems,
				doc.problem(f.FieldPath(), strings.TrimSuffix(e.Error(), fmt.Sprintf(" %q", f.FieldPath()))))
			continue
		}
		problems = append(problems, e.Error())
	}
	return doc, append(problems, doc.header()...)
}

// header checks apiVersion and kind.
func (d *document) header() []string {
	var problems []string
	if !slices.Contains(versions(), d.config.APIVersion) {
		problems = append(problems,
			d.problem("apiVersion", fmt.Sprintf("%q is not known here; it must be one of %s", d.config.APIVersion,
				strings.Join(versions(), ", "))))
	}
	if d.config.Kind != kind {
		problems = append(problems,
			d.problem("kind", fmt.Sprintf("%q is not known here; it must be %q", d.config.Kind, kind)))
	}
	if len(d.config.Providers) == 0 {
		problems = append(problems, d.problem("providers", "at least one provider is required"))
	}
	return problems
}

// wrongType words the decoder's error about a value of another type.
func wrongType(d *document, err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return d.problem(wrong.Field, "it has to be a "+wrong.Type.String())
	}
	return err.Error()
}
