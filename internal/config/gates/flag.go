package gates

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseFlag parses the value of --feature-gates: "A=true,B=false". Like the kubelet, it accepts spaces around names
// and values, empty parts, and all booleans of strconv.ParseBool; the last of repeated names counts. The error joins
// all errors. It doesn't check names; Resolve does.
func ParseFlag(text string) (map[string]bool, error) {
	wanted := map[string]bool{}
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("%q has no name: write NAME=true or NAME=false", part))
		case !found:
			errs = append(errs, fmt.Errorf("%q has no value: write %s=true or %[2]s=false", part, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("%q is neither true nor false: write %s=true or %[2]s=false", part, name))
		default:
			wanted[name] = on
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return wanted, nil
}
