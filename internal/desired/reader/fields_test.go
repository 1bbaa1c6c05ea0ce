package reader

import (
	"slices"
	"testing"
)

// A release of the API types with more fields needs the kubelet of that release asked: see test/kubernetes.
func TestInternalFieldsAreAll(t *testing.T) {
	elsewhere := []string{"DeprecatedServiceAccount", "HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", "PodIP"}
	for kind, names := range internalFields {
		for i := range kind.NumField() {
			if name := kind.Field(i).Name; !slices.Contains(names, name) && !slices.Contains(elsewhere, name) {
				t.Errorf("where the kubelet has %s of %s isn't known", name, kind)
			}
		}
	}
}
