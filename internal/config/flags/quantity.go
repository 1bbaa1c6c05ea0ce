package flags

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantityValue is the value of a flag for a number of bytes.
type quantityValue struct{ *resource.QuantityValue }

// newQuantityValue returns a value that is stored in target.
func newQuantityValue(target *resource.QuantityValue) quantityValue { return quantityValue{target} }

// Set accepts a quantity such as 64Ki.
func (q quantityValue) Set(text string) error {
	parsed, err := parseQuantity(text)
	if err != nil {
		return err
	}
	q.Quantity = parsed
	return nil
}

// hugeExponent matches exponents for which resource.ParseQuantity takes minutes or longer (1e-999999999), and which
// no real quantity has.
var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)

func parseQuantity(text string) (resource.Quantity, error) {
	if !hugeExponent.MatchString(text) {
		if q, err := resource.ParseQuantity(text); err == nil {
			return q, nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("%q isn't a quantity such as 1Gi", text)
}
