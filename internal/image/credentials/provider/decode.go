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

// versions are the supported API versions of the configuration. The older ones have no tokenAttributes.
func versions() []string { return []string{group + "/v1", group + "/v1beta1", group + "/v1alpha1"} }

// document is one decoded configuration file.
type document struct {
	config kubeletv1.CredentialProviderConfig
	root   *yaml.Node
}

// problem formats a field's problem, with the line if the file contains the field.
func (d *document) problem(path, text string) string {
	return yaml.Error{Line: yaml.LineOf(d.root, path), Path: path, Message: text}.Error()
}

// decode decodes one file strictly. It returns nil if the fields can't be decoded. Otherwise, the problems are
// unknown and duplicate fields, and invalid values of apiVersion and kind.
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
		return nil, []string{strings.Join(strings.Fields(err.Error()), " ")} // a duplicate key, with lines
	}
	doc := &document{root: nodes[0]}
	strict, err := kjson.UnmarshalStrict(text, &doc.config)
	if err != nil {
		return nil, []string{wrongType(doc, err)}
	}
	var problems []string
	for _, e := range strict {
		if f, ok := errors.AsType[kjson.FieldError](e); ok {
			problems = append(problems,
				doc.problem(f.FieldPath(), strings.TrimSuffix(e.Error(), fmt.Sprintf(" %q", f.FieldPath()))))
			continue
		}
		problems = append(problems, e.Error())
	}
	return doc, append(problems, doc.header()...)
}

// header checks apiVersion, kind and that there are providers.
func (d *document) header() []string {
	var problems []string
	if !slices.Contains(versions(), d.config.APIVersion) {
		problems = append(problems,
			d.problem("apiVersion", fmt.Sprintf("%q isn't supported; it must be one of %s", d.config.APIVersion,
				strings.Join(versions(), ", "))))
	}
	if d.config.Kind != kind {
		problems = append(problems,
			d.problem("kind", fmt.Sprintf("%q isn't supported; it must be %q", d.config.Kind, kind)))
	}
	if len(d.config.Providers) == 0 {
		problems = append(problems, d.problem("providers", "at least one provider is required"))
	}
	return problems
}

// wrongType formats the decoder's error about a value of the wrong type.
func wrongType(d *document, err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return d.problem(wrong.Field, "it has to be a "+wrong.Type.String())
	}
	return err.Error()
}
