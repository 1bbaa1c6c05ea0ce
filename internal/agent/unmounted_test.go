package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestVolumesThatNobodyMounts: a pod runs without them. A container that is added to it gets them: one that waits for an
// object holds up no other one, and one whose volume isn't supported is refused. All go with the pod.
func TestVolumesThatNobodyMounts(t *testing.T) {
	r := newRig(t)
	volumes := []string{
		"{name: data, emptyDir: {}}", "{name: spare, emptyDir: {}}", "{name: conf, configMap: {name: missing}}", "{name: db, persistentVolumeClaim: {claimName: missing}}",
		"{name: disk, iscsi: {targetPortal: 192.0.2.1, iqn: iqn.2001-04.com.example:disk, lun: 0}}", "{name: node, hostPath: {path: /no/such/file, type: File}}",
	}
	r.want("a", "  terminationGracePeriodSeconds: 1\n  volumes: ["+strings.Join(volumes, ", ")+"]\n  containers:\n"+
		"  - {name: main, image: IMAGE, volumeMounts: [{name: data, mountPath: /data}]}\n")
	r.up()
	r.await("the pod runs", r.running("a/main"))
	dir := filepath.Dir(r.volumesOf("a/main"))
	made := func() (names []string) {
		found, err := filepath.Glob(filepath.Join(dir, "volumes/*/*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	if got := strings.Join(made(), " "); got != "data" {
		t.Errorf("made: %s", got)
	}
	add := func(volume string) error {
		c := v1.EphemeralContainer{}
		c.Name, c.Image, c.VolumeMounts = "debug-"+volume, image, []v1.VolumeMount{{Name: volume, MountPath: "/v"}}
		return r.client().AddContainer(t.Context(), types.NamespacedName{Namespace: "default", Name: "a-n"}, "", c)
	}
	if err := add("disk"); err == nil || !strings.Contains(err.Error(), `volume "disk"`) {
		t.Errorf("a volume that isn't supported: %v", err)
	}
	for _, volume := range []string{"conf", "spare"} {
		if err := add(volume); err != nil {
			t.Fatal(err)
		}
	}
	r.await("one that has its volume runs", r.running("a/main", "a/debug-spare"))
	r.waitsFor("a", "debug-conf", "ConfigMap default/missing")
	if err := os.WriteFile(filepath.Join(r.mount("a/debug-spare", "/v"), "f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	r.restart()
	r.await("all that ran run", r.running("a/main", "a/debug-spare"))
	r.put("objects", configMap("missing", "k: v"))
	r.await("the other one runs, too", r.running("a/main", "a/debug-spare", "a/debug-conf"))
	if text, err := os.ReadFile(filepath.Join(r.mount("a/debug-conf", "/v"), "k")); err != nil || string(text) != "v" {
		t.Errorf("%q, %v", text, err)
	}
	r.put("objects", configMap("missing", "k: w"))
	r.await("the edit is in the volume", func() string {
		text, err := os.ReadFile(filepath.Join(r.mount("a/debug-conf", "/v"), "k"))
		if err != nil || string(text) != "w" {
			return string(text)
		}
		return ""
	})
	r.unwant("a")
	r.await("the pod is gone", func() string {
		if _, err := os.Lstat(dir); err == nil {
			return dir
		}
		return ""
	})
}
