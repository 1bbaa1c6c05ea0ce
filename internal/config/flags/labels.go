package flags

import "k8s.io/apimachinery/pkg/util/validation"

// Rules for keys and values of labels and taints, as text that follows "must be".
const (
	keyRule = "of 1 to 63 letters, digits, -, _ and ., begin and end with a letter or digit, and may follow a DNS " +
		"domain in lower case and a / (example.com/name)"
	valueRule = "empty or of at most 63 letters, digits, -, _ and ., and begin and end with a letter or digit"
)

// validKey reports whether a label's or a taint's key follows keyRule.
func validKey(key string) bool { return len(validation.IsQualifiedName(key)) == 0 }

// validValue reports whether a label's or a taint's value follows valueRule.
func validValue(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }
