package volume

import (
	"context"
	"errors"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ErrUnsupported is what a plugin's error wraps when trying again can't help,
// because this build can't do what the volume asks for.
var ErrUnsupported = errors.New("not supported by this build")

// Plugin makes volumes of one kind. Its methods are safe for concurrent use, for
// one volume by one caller at a time.
type Plugin interface {
	// Name is the plugin's name as folders have it, "kubernetes.io/empty-dir".
	Name() string
	// Supports reports whether the volume is of the plugin's kind.
	Supports(*v1.Volume) bool
	// Prepare makes the volume ready to be mounted into containers. It is called
	// again after a crash at any moment, after a reboot and while the volume is in use.
	Prepare(context.Context, Request) error
	// HostPath is what to mount into containers once the volume is prepared.
	HostPath(Request) string
}

// Request is one volume of one pod.
type Request struct {
	Pod    *v1.Pod
	Volume *v1.Volume
	// Dir is the volume's own place below the pod's folder. Its parents may be missing.
	Dir string
}

// Kind is the name of the volume's kind as manifests have it, "emptyDir"; empty if
// it has none.
func Kind(v *v1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
