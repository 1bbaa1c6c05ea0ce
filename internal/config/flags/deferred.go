package flags

import "github.com/spf13/pflag"

// deferredValue is the value of a flag that stores errors instead of returning them. This way all errors are reported
// at once. They also don't contain the flag's value, which may be secret: pflag adds it to every error that Set
// returns.
type deferredValue struct {
	pflag.Value
	// Message replaces the text of an error, unless it is empty.
	Message string

	problems []string
}

// Set never returns an error.
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

// Problems returns the errors of the values so far.
func (d *deferredValue) Problems() []string { return d.problems }
