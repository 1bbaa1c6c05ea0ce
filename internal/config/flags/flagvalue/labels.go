package flagvalue

import "k8s.io/apimachinery/pkg/util/validation"

// What keys and values of labels and taints have to be, in words that follow "must be".
const (
	KeyRule   = "of 1 to 63 letters, digits, -, _ and ., begin and end with a letter or digit, and may follow a DNS domain in lower case and a / (example.com/name)"
	ValueRule = "empty or of at most 63 letters, digits, -, _ and ., and begin and end with a letter or digit"
)

// ValidKey reports whether a label's or a taint's key holds to KeyRule.
func ValidKey(key string) bool { return len(validation.IsQualifiedName(key)) == 0 }

// ValidValue reports whether a label's or a taint's value holds to ValueRule.
func ValidValue(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }
