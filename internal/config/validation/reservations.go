package validation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reservations checks the resources that are reserved against pods.
func (k *check) reservations() {
	k.reserved(at("systemReserved"), k.SystemReserved)
	k.reserved(at("kubeReserved"), k.KubeReserved)
	k.qosReserved(at("qosReserved"))
	path := at("reservedSystemCPUs")
	if k.ReservedSystemCPUs == "" {
		return
	}
	if !isCPUList(k.ReservedSystemCPUs) {
		k.invalid(path, k.ReservedSystemCPUs,
			fmt.Sprintf(`must be a list of CPUs and ranges of them such as "0,2-3", each from 0 to %d`, maxCPUs-1))
	}
	if k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "" {
		k.forbidden(path, "can't be used together with systemReservedCgroup or kubeReservedCgroup")
	}
}

func (k *check) reserved(path *field.Path, amounts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if known := []string{"cpu", "memory", "ephemeral-storage", "pid"}; !slices.Contains(known, name) {
			k.unknownKey(path, name, known...)
			continue
		}
		if q, err := parseQuantity(amounts[name]); err != nil || q.Sign() < 0 {
			k.invalid(path.Key(name), amounts[name], `must be a quantity such as "500m" or "1Gi", 0 or more`)
		}
	}
}

func (k *check) qosReserved(path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(k.QOSReserved)) {
		if name != string(v1.ResourceMemory) {
			k.unknownKey(path, name, string(v1.ResourceMemory))
			continue
		}
		text, ok := strings.CutSuffix(k.QOSReserved[name], "%")
		if n, err := strconv.Atoi(text); !ok || err != nil || n < 0 || n > 100 {
			k.invalid(path.Key(name), k.QOSReserved[name], `must be a whole percentage from "0%" to "100%"`)
		}
	}
}

// reservedMemory checks the reserved memory of NUMA nodes.
func (k *check) reservedMemory() {
	type limit struct {
		node int32
		name v1.ResourceName
	}
	seen := map[limit]bool{}
	for i, r := range k.ReservedMemory {
		path := at("reservedMemory").Index(i)
		if r.NumaNode < 0 {
			k.invalid(path.Child("numaNode"), r.NumaNode, "must be the number of a NUMA node: 0 or more")
		}
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			limits := path.Child("limits")
			if name != v1.ResourceMemory && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				k.unknownKey(limits, string(name), string(v1.ResourceMemory), "hugepages-<size>")
				continue
			}
			if q := r.Limits[name]; q.Value() <= 0 { // Value is also 0 if the quantity doesn't fit
				k.invalid(limits.Key(string(name)), field.OmitValueType{}, `must be more than 0, such as "1Gi"`)
			}
			if seen[limit{r.NumaNode, name}] {
				k.duplicate(limits.Key(string(name)), fmt.Sprintf("numaNode %d", r.NumaNode))
			}
			seen[limit{r.NumaNode, name}] = true
		}
	}
}
