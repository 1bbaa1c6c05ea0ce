package sourcetest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// Node is the node's name in tests.
const Node = "node1"

// Manifest returns a good manifest of a pod with one container.
func Manifest(name, image string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  labels: {app: %s}
spec:
  containers:
  - name: main
    image: %s
    args: ["--listen", ":8080"]
    env:
    - {name: MODE, value: production}
    resources:
      limits: {cpu: 100m, memory: 64Mi}
`, name, name, image)
}

// Otherwise returns a manifest from Manifest with a change that can't be applied in place.
func Otherwise(manifest string) string { return strings.Replace(manifest, ":8080", ":9090", 1) }

// Broken is not a valid manifest.
const Broken = "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n"

// Invalid returns a readable manifest of a pod that can't be run.
func Invalid(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main}]}\n", name)
}

// ConfigMap returns a good manifest of a ConfigMap with one value, under "key".
func ConfigMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value)
}

// Immutable returns a manifest from ConfigMap with the field immutable.
func Immutable(manifest string) string { return manifest + "immutable: true\n" }

// Secret returns a good manifest of a Secret with one value, under "key".
func Secret(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {key: %q}\n", name, value)
}

// Volume returns good manifests of a PersistentVolume and of a claim to it, of the same name.
func Volume(name, size string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: %[2]s}, accessModes: [ReadWriteOnce], hostPath: {path: /mnt/%[1]s}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {volumeName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: %[2]s}}}
`, name, size)
}

// Rules returns the real defaults and validation.
func Rules() reader.Rules {
	return reader.Rules{SetDefaults: spec.SetDefaults, Validate: spec.Validate, QOSClass: spec.QOSClass}
}

// NewReader returns a reader for a source, with Rules.
func NewReader(source pod.Source) *reader.Reader { return reader.New(Node, source, Rules()) }

// Pods returns the report's pods as "name=image", sorted; stale ones end in "!".
func Pods(r desired.Report) []string {
	pods := []string{}
	for _, c := range r.Claims {
		s := c.Desired.Pod.Name + "=" + c.Desired.Pod.Spec.Containers[0].Image
		if c.Desired.Stale != "" {
			s += "!"
		}
		pods = append(pods, s)
	}
	slices.Sort(pods)
	return pods
}

// Objects returns the report's objects, sorted: ConfigMaps and Secrets as "name=value" (with the value that the
// functions ConfigMap and Secret set), PersistentVolumes and their claims as "name=size", and other objects by their
// names. Stale objects end in "!".
func Objects(r desired.Report) []string {
	list := []string{}
	for _, c := range r.Objects {
		s := c.Object.Key().Name
		switch o := c.Object.Object().(type) {
		case *v1.ConfigMap:
			s += "=" + o.Data["key"]
		case *v1.Secret:
			s += "=" + string(o.Data["key"])
		case *v1.PersistentVolume:
			s += "=" + o.Spec.Capacity.Storage().String()
		case *v1.PersistentVolumeClaim:
			s += "=" + o.Spec.Resources.Requests.Storage().String()
		}
		if c.Object.Stale != "" {
			s += "!"
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// HasObjects returns a condition for Recorder.Wait: the report has exactly these objects.
func HasObjects(list ...string) func(desired.Report) bool {
	slices.Sort(list)
	return func(r desired.Report) bool { return slices.Equal(Objects(r), list) }
}

// Has returns a condition for Recorder.Wait: the report has exactly these pods.
func Has(pods ...string) func(desired.Report) bool {
	slices.Sort(pods)
	return func(r desired.Report) bool { return slices.Equal(Pods(r), pods) }
}

// Describe describes a report.
func Describe(r desired.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pods %q, objects %q, pending %v", Pods(r), Objects(r), r.Pending)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\n  problem with %s (pod %q): %s", p.Origin, p.Pod, p.Message)
	}
	return b.String()
}
