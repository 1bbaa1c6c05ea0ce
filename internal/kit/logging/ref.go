package logging

import (
	"strings"

	"k8s.io/klog/v2"
)

// Ref is the value of a log line for the object of this NAMESPACE/NAME, as klog.KRef
// is where the two are apart.
func Ref(name string) klog.ObjectRef {
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		return klog.KRef(namespace, rest)
	}
	return klog.KRef("", name)
}
