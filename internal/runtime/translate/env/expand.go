package env

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

const tooLong = "more than the 128 KiB that Linux takes, with its references replaced: make it shorter"

// Strings expands each string of list with the environment env. It fails if one string, or all of them together,
// exceed Linux' limits.
func Strings(list []string, env []*runtimeapi.KeyValue) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var known map[string]string // built on first use: most commands have no references
	lookup := func(name string) (string, bool) {
		if known == nil {
			known = make(map[string]string, len(env))
			for _, kv := range env {
				known[kv.GetKey()] = string(kv.GetValue())
			}
		}
		value, ok := known[name]
		return value, ok
	}
	out, size := make([]string, len(list)), 0
	for i, s := range list {
		var ok bool
		if out[i], ok = pod.Expand(s, lookup); !ok {
			return nil, fmt.Errorf("item %d has %s", i+1, tooLong)
		}
		if size += len(out[i]) + len("\x00"); size > maxEnvironment {
			return nil, fmt.Errorf("item %d and those before it have more than the 6 MiB that Linux takes, with "+
				"their references replaced: make them shorter", i+1)
		}
	}
	return out, nil
}
