package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// onceValue is a map that rejects a text with two values for one key: otherwise the later value would silently override
// the earlier one. A later flag may still replace the value of an earlier flag, as a drop-in of a systemd unit does.
type onceValue struct {
	pflag.Value
	// separator is between key and value.
	separator string
}

// Set implements pflag.Value.
func (o onceValue) Set(text string) error {
	given := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, o.separator)
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if before, twice := given[key]; twice && before != value {
			return fmt.Errorf("%s is given twice, as %s and as %s: leave one of them out", key, before, value)
		}
		given[key] = value
	}
	return o.Value.Set(text)
}
