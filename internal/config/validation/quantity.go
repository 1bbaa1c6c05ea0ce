package validation

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits of the text of a quantity. resource.ParseQuantity takes long for large exponents: two seconds for 1e-9999999.
const (
	maxQuantity       = 32
	maxExponentDigits = 2
)

var errQuantity = errors.New("not a quantity")

// parseQuantity parses a number with a suffix ("10Mi", "500m", "1e9") that fits into 64 bits.
func parseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantity || longExponent(text) {
		return resource.Quantity{}, errQuantity
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() != 0 && q.Value() == 0 { // Value is 0 if the quantity doesn't fit
		return resource.Quantity{}, errQuantity
	}
	return q, nil
}

func longExponent(text string) bool {
	i := strings.IndexAny(text, "eE")
	if i < 0 || text[i:] == "Ei" {
		return false
	}
	return len(strings.TrimLeft(text[i+1:], "+-")) > maxExponentDigits
}
