package fields

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text writes the entries for a terminal of width columns, grouped by topic. It doesn't break words that are longer
// than a line.
func Text(w io.Writer, entries []Entry, width int) error {
	var b strings.Builder
	topic := ""
	for _, e := range entries {
		if e.Topic != topic {
			topic = e.Topic
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(topic))
		}
		fmt.Fprintf(&b, "%s\n", e.Field.Path)
		for _, paragraph := range []string{e.facts(), e.Field.Doc, e.effect(), e.departs()} {
			wrap(&b, paragraph, "    ", width)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// facts describes the values, the default and the feature gate.
func (e *Entry) facts() string {
	text := "Takes: " + e.Type + ". Default: " + e.Default + "."
	if e.Field.Gate != "" {
		text += " Feature gate: " + e.Field.Gate + "."
	}
	return text
}

// effect describes the field's effect in this build, and when a change applies.
func (e *Entry) effect() string {
	f := &e.Field
	when := " A change needs a restart."
	if f.Live {
		when = " A reload applies a change."
	}
	switch {
	case !f.Acts():
		return "NO EFFECT: " + f.Why + "." + when
	case f.Partly != "":
		return "In part: " + f.Partly + "." + when
	case f.Embedded:
		return "Acted on with the embedded runtime only." + when
	case f.Cluster:
		return "Acted on in a cluster only." + when
	default:
		return "Acted on." + when
	}
}

// departs describes how deckhand's default behaviour for the field differs from the kubelet's; empty if it doesn't.
func (e *Entry) departs() string {
	if e.Field.Departs == "" {
		return ""
	}
	return "Unlike the kubelet: " + e.Field.Departs + "."
}

// wrap writes text in lines of at most width columns, with indent before each line. It writes nothing for an empty
// text.
func wrap(b *strings.Builder, text, indent string, width int) {
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	if column > 0 {
		b.WriteByte('\n')
	}
}
