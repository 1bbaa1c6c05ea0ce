package flags

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// memoryValue is memory reservations by NUMA node: "0:memory=1Gi,hugepages-2Mi=4Mi", several separated by semicolons
// or in repeated flags. As in the kubelet, an empty string has no effect.
type memoryValue struct {
	target *[]v1beta1.MemoryReservation
	given  bool
}

// newMemoryValue returns a value that is stored in target.
func newMemoryValue(target *[]v1beta1.MemoryReservation) *memoryValue {
	return &memoryValue{target: target}
}

// Set adds reservations.
func (m *memoryValue) Set(text string) error {
	if text == "" {
		return nil
	}
	var added []v1beta1.MemoryReservation
	for spec := range strings.SplitSeq(text, ";") {
		reservation, err := parseReservation(spec)
		if err != nil {
			return err
		}
		added = append(added, reservation)
	}
	*m.target, m.given = append(*m.target, added...), true
	return nil
}

// Given reports whether a reservation was given.
func (m *memoryValue) Given() bool { return m.given }

// String returns the reservations in the format of Set.
func (m *memoryValue) String() string {
	specs := make([]string, 0, len(*m.target))
	for _, r := range *m.target {
		limits := make([]string, 0, len(r.Limits))
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			quantity := r.Limits[name]
			limits = append(limits, string(name)+"="+quantity.String())
		}
		specs = append(specs, strconv.Itoa(int(r.NumaNode))+":"+strings.Join(limits, ","))
	}
	return strings.Join(specs, ";")
}

// Type is the type's name in the help.
func (*memoryValue) Type() string { return "reserved-memory" }

func parseReservation(spec string) (v1beta1.MemoryReservation, error) {
	var out v1beta1.MemoryReservation
	node, limits, ok := strings.Cut(spec, ":")
	if !ok {
		return out, fmt.Errorf("%q has no NUMA node: it must be such as 0:memory=1Gi", spec)
	}
	number, err := strconv.ParseInt(node, 10, 32)
	if err != nil {
		return out, fmt.Errorf("%q isn't the number of a NUMA node", node)
	}
	out.NumaNode, out.Limits = int32(number), v1.ResourceList{}
	for limit := range strings.SplitSeq(limits, ",") {
		text, amount, ok := strings.Cut(limit, "=")
		if !ok {
			return out, fmt.Errorf("%q must be a type and a quantity, such as memory=1Gi", limit)
		}
		name := v1.ResourceName(text)
		if name != v1.ResourceMemory && !strings.HasPrefix(text, v1.ResourceHugePagesPrefix) {
			return out, fmt.Errorf("%q isn't a type of memory: it must be memory or hugepages-SIZE", text)
		}
		if _, twice := out.Limits[name]; twice {
			return out, fmt.Errorf("%s is given twice for NUMA node %d", name, number)
		}
		quantity, err := parseQuantity(amount)
		if err != nil {
			return out, err
		}
		out.Limits[name] = quantity
	}
	return out, nil
}
