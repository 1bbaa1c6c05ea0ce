package logging

import (
	"strings"

	"k8s.io/klog/v2"
)

// Ref returns the value of a log line for an object by its NAMESPACE/NAME, like klog.KRef for a separate namespace
// and name.
func Ref(name string) klog.ObjectRef {
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		return klog.KRef(namespace, rest)
	}
	return klog.KRef("", name)
}
