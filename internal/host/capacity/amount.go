package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is an amount of a resource, or a percentage of its capacity, as in evictionHard.
type Amount struct {
	Value int64
	// Percent is the percentage; 0 if Value is meant.
	Percent float64
}

// ParseAmount parses an amount such as 100Mi or a percentage such as 10%. An empty text is the zero Amount. The error
// begins with the quoted text.
func ParseAmount(text string) (Amount, error) {
	if text == "" {
		return Amount{}, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0) || math.IsInf(percent, 0) {
			return Amount{}, fmt.Errorf("%q isn't a percentage from 0%% to 100%%", text)
		}
		return Amount{Percent: percent}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Amount{}, fmt.Errorf("%q is neither a quantity such as 100Mi nor a percentage: %w", text, err)
	}
	if q.Sign() < 0 {
		return Amount{}, fmt.Errorf("%q is negative", text)
	}
	return Amount{Value: q.Value()}, nil
}

// Off reports whether this amount disables a threshold: 0 and 100% do (API comment of evictionHard).
func (a Amount) Off() bool { return a == Amount{} || a.Percent == 100 }

// Of returns the amount for a capacity in the same unit. It saturates.
func (a Amount) Of(capacity int64) int64 {
	if a.Percent == 0 {
		return a.Value
	}
	part := math.Round(float64(capacity) * a.Percent / 100)
	if part >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(part)
}

// String is the amount as in a configuration file.
func (a Amount) String() string {
	if a.Percent != 0 {
		return strconv.FormatFloat(a.Percent, 'f', -1, 64) + "%"
	}
	return resource.NewQuantity(a.Value, resource.BinarySI).String()
}
