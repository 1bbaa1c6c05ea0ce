package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// csiDriver is a CSIDriver object that wants pod information and a token, and volumes to be published again.
const csiDriver = `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: csi.deckhand.test}, spec: {attachRequired: false, podInfoOnMount: true,
  requiresRepublish: true, tokenRequests: [{audience: vault, expirationSeconds: 3600}], volumeLifecycleModes: [Ephemeral, Persistent]}}
---
`

// claimed is a manifest of a PersistentVolume with a source, and of a claim of the same name, which is bound to it.
// metadata is further metadata of both.
func claimed(name, source, metadata string) string {
	const fields = `accessModes: [ReadWriteOnce], storageClassName: ""`
	metadata = "name: " + name + ", " + metadata
	return manifest("v1", "PersistentVolume", metadata,
		"{capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, "+fields+", "+source+"}") +
		manifest("v1", "PersistentVolumeClaim", metadata,
			"{volumeName: "+name+", resources: {requests: {storage: 1Gi}}, "+fields+"}")
}

// startDriver starts a CSI driver on the node, which stages volumes.
func (r *rig) startDriver(o driver.Options) *driver.Process {
	r.t.Helper()
	pods, plugins := filepath.Join(r.RootDir, "pods"), filepath.Join(r.RootDir, "plugins")
	registry := filepath.Join(r.RootDir, "plugins_registry")
	for _, dir := range []string{pods, plugins, registry} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			r.t.Fatal(err)
		}
	}
	o.Registration, o.Below = filepath.Join(registry, "csi.sock"), []string{pods, plugins}
	o.NodeID, o.Capabilities = "id-1", []string{"STAGE_UNSTAGE_VOLUME"}
	return driver.Start(r.t, o)
}

// mounted are the mounts of volumes, and of what is staged for them.
func (r *rig) mounted() []string {
	r.t.Helper()
	return slices.Concat(driver.Mounts(r.t, filepath.Join(r.RootDir, "pods")),
		driver.Mounts(r.t, filepath.Join(r.RootDir, "plugins")))
}

// csi: pods have volumes of a CSI driver, with no more than a node's rights: it registers, gets pod information, a token
// and a Secret, and pods wait for its CSIDriver object.
func (r *rig) csi(t *testing.T) {
	d := r.startDriver(driver.Options{Args: []string{"--topology", "example.com/rack=r1"}})
	r.Eventually("the driver is in the node's objects", func() error {
		got := r.kubectl("get", "csinode", r.name, "-o", "jsonpath={.spec.drivers[*].name} {.spec.drivers[*].nodeID}") + " " +
			r.kubectl("get", "node", r.name, "-o", `jsonpath={.metadata.labels.example\.com/rack}`)
		if got != "csi.deckhand.test id-1 r1" {
			return errors.New(got)
		}
		return nil
	})
	// The driver gets the Secret of the inline volume.
	r.apply(secret("csi", "canary-4711") + claimed("csi", "csi: {driver: csi.deckhand.test, volumeHandle: h1}", "") +
		podNamed("csi", spec("[serve]", "volumes: [{name: a, csi: {driver: csi.deckhand.test, nodePublishSecretRef: "+
			"{name: csi}}}, {name: b, persistentVolumeClaim: {claimName: csi}}],")))
	r.Eventually("the pod waits for the CSIDriver object", func() error {
		if out := r.kubectl("get", "events", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, "(no CSIDriver object)") {
			return errors.New(out)
		}
		return nil
	})
	r.apply(csiDriver)
	r.podReady("csi")

	s, err := d.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	publishes := s.Of("NodePublishVolume")
	for _, c := range publishes {
		context, secrets := map[string]string{}, map[string]string{}
		if err := errors.Join(c.Decode("volumeContext", &context), c.Decode("secrets", &secrets)); err != nil {
			t.Fatal(err)
		}
		inline := strings.HasPrefix(c.Volume, "csi-")
		var tokens map[string]struct{ Token, ExpirationTimestamp string }
		if err := json.Unmarshal([]byte(context["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens); err != nil || strings.Count(tokens["vault"].Token, ".") != 2 {
			t.Errorf("volume %s: tokens: %v", c.Volume, err)
		}
		if context["csi.storage.k8s.io/pod.name"] != "csi" || context["csi.storage.k8s.io/ephemeral"] != fmt.Sprint(inline) ||
			inline != (secrets["k"] == "canary-4711") {
			t.Errorf("volume %s: published with %s", c.Volume, c.Request)
		}
	}
	// Each may have been published again, with a newer token.
	volumes := map[string]bool{}
	for _, c := range publishes {
		volumes[c.Volume] = true
	}
	if len(volumes) != 2 || len(s.Of("NodeStageVolume")) != 1 {
		t.Errorf("published %v, %d calls to stage", volumes, len(s.Of("NodeStageVolume")))
	}
	r.kubectl("delete", "pod", "csi", "--timeout=60s")
	if _, err := d.Await(t.Context(), func(s driver.State) bool {
		return len(s.Of("NodeUnpublishVolume")) == 2 && len(s.Of("NodeUnstageVolume")) == 1 && s.Of("NodeUnstageVolume")[0].Code == "OK"
	}); err != nil {
		t.Fatal(err)
	}
	d.CheckLaw(t)
	d.Stop()
	r.Eventually("the driver is gone from the node's objects", func() error {
		if got := r.kubectl("get", "csinode", r.name, "-o", "jsonpath={.spec.drivers[*].name}"); got != "" {
			return errors.New(got)
		}
		return nil
	})
	if strings.Contains(r.Logged(), "canary-4711") {
		t.Error("a Secret's value is in the log")
	}
	r.kubectl("delete", "pvc,pv,secret,csidriver", "--all", "--timeout=60s")
}
