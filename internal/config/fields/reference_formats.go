package fields

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Markdown writes the entries as a table for each topic.
func Markdown(w io.Writer, entries []Entry) error {
	var b strings.Builder
	topic := ""
	cell := strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace
	for _, e := range entries {
		if e.Topic != topic {
			if topic != "" {
				b.WriteByte('\n')
			}
			topic = e.Topic
			fmt.Fprintf(&b, "## %s\n\n| field | takes | default | what it means | what deckhand does |\n| --- | --- "+
				"| --- | --- | --- |\n", topic)
		}
		does := e.effect()
		if e.Field.Gate != "" {
			does += " Feature gate: " + e.Field.Gate + "."
		}
		does = strings.TrimSpace(does + " " + e.departs())
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", e.Field.Path, e.Type, cell(e.Default), cell(e.Field.Doc),
			cell(does))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Effects of a field in the JSON output.
const (
	effectFull = "full"
	effectPart = "part"
	effectNone = "none"
)

// object is an entry in the JSON output. Its names are an API for programs and must not change.
type object struct {
	Path    string `json:"path"`
	Topic   string `json:"topic"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
	// Effect is full, part or none.
	Effect string `json:"effect"`
	// Why says which part has no effect, unless Effect is full.
	Why         string `json:"why,omitempty"`
	Departs     string `json:"departs,omitempty"`
	FeatureGate string `json:"featureGate,omitempty"`
	// EmbeddedOnly means that the field has an effect only with the embedded runtime.
	EmbeddedOnly bool `json:"embeddedOnly,omitempty"`
	// ClusterOnly means that the field has an effect only with a kubeconfig.
	ClusterOnly bool `json:"clusterOnly,omitempty"`
	// Reload means that a reload applies a change of the field.
	Reload bool `json:"reload"`
	// Package is the directory under internal/ of the package that reads the field.
	Package string `json:"room,omitempty"`
}

// JSON writes the entries as a list of objects.
func JSON(w io.Writer, entries []Entry) error {
	list := make([]object, 0, len(entries))
	for _, e := range entries {
		f := &e.Field
		o := object{Path: f.Path, Topic: e.Topic, Type: e.Type, Default: e.Default, Doc: f.Doc, Effect: effectFull,
			Departs: f.Departs, FeatureGate: f.Gate, EmbeddedOnly: f.Embedded, ClusterOnly: f.Cluster, Reload: f.Live,
			Package: f.Package}
		switch {
		case !f.Acts():
			o.Effect, o.Why = effectNone, f.Why
		case f.Partly != "":
			o.Effect, o.Why = effectPart, f.Partly
		}
		list = append(list, o)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}
