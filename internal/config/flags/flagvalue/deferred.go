// Package flagvalue has what pflag lacks: values of flags in forms of their own, as
// the kubelet reads them.
package flagvalue

import "github.com/spf13/pflag"

// Deferred is a value whose errors are kept instead of returned: so that all that is
// wrong is told at once, and never with the text that was given, which may be secret.
// pflag itself puts that text before every error.
type Deferred struct {
	pflag.Value
	// Message is told instead of an error's own; empty for its own.
	Message string

	problems []string
}

// Set never fails.
func (d *Deferred) Set(text string) error {
	err := d.Value.Set(text)
	if err == nil {
		return nil
	}
	if d.Message != "" {
		d.problems = append(d.problems, d.Message)
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			d.problems = append(d.problems, one.Error())
		}
		return nil
	}
	d.problems = append(d.problems, err.Error())
	return nil
}

// Problems returns what was wrong with the texts given so far.
func (d *Deferred) Problems() []string { return d.problems }
