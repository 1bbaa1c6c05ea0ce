package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// taintsValue is a node's taints: "key=value:Effect" or "key:Effect", several separated by commas. As in the kubelet,
// the last of repeated flags counts, and an empty string means no taints.
type taintsValue struct{ target *[]v1.Taint }

// newTaintsValue returns a value that is stored in target.
func newTaintsValue(target *[]v1.Taint) taintsValue { return taintsValue{target} }

// Set parses a list. It returns all errors, one per taint.
func (t taintsValue) Set(text string) error {
	*t.target = nil
	if text == "" {
		return nil
	}
	var taints []v1.Taint
	var errs []error
	for spec := range strings.SplitSeq(text, ",") {
		taint, err := parseTaint(spec)
		if err == nil && slices.ContainsFunc(taints, func(o v1.Taint) bool {
			return o.Key == taint.Key && o.Effect == taint.Effect
		}) {
			err = fmt.Errorf("%q: there is a taint with this key and effect already", spec)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		taints = append(taints, taint)
	}
	*t.target = taints
	return errors.Join(errs...)
}

// String returns the taints in the format of Set.
func (t taintsValue) String() string {
	texts := make([]string, 0, len(*t.target))
	for _, taint := range *t.target {
		texts = append(texts, taint.Key+"="+taint.Value+":"+string(taint.Effect))
	}
	return strings.Join(texts, ",")
}

// Type is the type's name in the help.
func (taintsValue) Type() string { return "[]v1.Taint" }

func parseTaint(spec string) (v1.Taint, error) {
	if strings.HasSuffix(spec, "-") {
		return v1.Taint{}, fmt.Errorf("%q: a - at the end takes a taint away, and a node that registers has none yet",
			spec)
	}
	pair, effect, ok := strings.Cut(spec, ":")
	if !ok || strings.Contains(effect, ":") {
		return v1.Taint{}, fmt.Errorf("%q isn't a taint: it must be key=value:Effect or key:Effect", spec)
	}
	key, value, _ := strings.Cut(pair, "=")
	taint := v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}
	if !validKey(key) {
		return v1.Taint{}, fmt.Errorf("%q: the key %q must be %s", spec, key, keyRule)
	}
	if !validValue(value) {
		return v1.Taint{}, fmt.Errorf("%q: the value %q must be %s", spec, value, valueRule)
	}
	switch taint.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		return taint, nil
	default:
		return v1.Taint{}, fmt.Errorf("%q: the effect must be NoSchedule, PreferNoSchedule or NoExecute, not %q", spec,
			effect)
	}
}
