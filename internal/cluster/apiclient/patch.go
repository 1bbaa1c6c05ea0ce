package apiclient

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/json"
)

// Difference is the merge patch (RFC 7386) between the JSON of two states of an object; empty if they are equal. The
// caller turns it into a strategic merge patch by replacing the lists that the API merges. The library for strategic
// merge patches isn't used: it depends on all of OpenAPI, and a node patches few such lists.
func Difference(was, now any) (map[string]any, error) {
	before, err := asMap(was)
	if err != nil {
		return nil, err
	}
	after, err := asMap(now)
	if err != nil {
		return nil, err
	}
	return difference(before, after), nil
}

// asMap decodes an object's JSON without its type. Integers stay integers: floating-point numbers would change those
// beyond 2^53.
func asMap(o any) (m map[string]any, err error) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

func difference(was, now map[string]any) map[string]any {
	p := map[string]any{}
	for key := range was {
		if _, stays := now[key]; !stays {
			p[key] = nil
		}
	}
	for key, to := range now {
		from, had := was[key]
		a, isMap := from.(map[string]any)
		b, becomesMap := to.(map[string]any)
		switch {
		case isMap && becomesMap:
			if d := difference(a, b); len(d) > 0 {
				p[key] = d
			}
		case !had || !reflect.DeepEqual(from, to):
			p[key] = to
		}
	}
	return p
}
