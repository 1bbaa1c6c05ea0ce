package gates

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseFlag reads the value of --feature-gates: "A=true,B=false". It takes what the
// kubelet takes: spaces around names and values, empty parts, all that
// strconv.ParseBool knows, and of a name that comes twice the last. The error joins
// everything that is wrong; names aren't looked up, see Resolve.
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
