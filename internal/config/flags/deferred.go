package flags

import "github.com/spf13/pflag"

// deferredValue is a value whose errors are kept instead of returned: so that all that is
// wrong is reported at once, and never with the text that was given, which may be secret.
// pflag itself puts that text before every error.
type deferredValue struct {
	pflag.Value
	// Message is reported instead of an error's own; empty for its own.
	Message string

	problems []string
}

// Set never fails.
func (d *deferredValue) Set(text string) error {
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
func (d *deferredValue) Problems() []string { return d.problems }
