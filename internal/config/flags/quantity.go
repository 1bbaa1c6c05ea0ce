package flags

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantityValue is an amount of bytes.
type quantityValue struct{ *resource.QuantityValue }

// newQuantityValue returns a value that is kept in target.
func newQuantityValue(target *resource.QuantityValue) quantityValue { return quantityValue{target} }

// Set takes a quantity such as 64Ki.
func (q quantityValue) Set(text string) error {
	parsed, err := parseQuantity(text)
	if err != nil {
		return err
	}
	q.Quantity = parsed
	return nil
}

// hugeExponent is one that resource.ParseQuantity would compute with for minutes or
// more (1e-999999999), and that no amount has.
var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)

func parseQuantity(text string) (resource.Quantity, error) {
	if !hugeExponent.MatchString(text) {
		if q, err := resource.ParseQuantity(text); err == nil {
			return q, nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("%q isn't a quantity such as 1Gi", text)
}
