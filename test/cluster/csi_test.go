package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// csiDriver is a CSIDriver object that wants pod information and a token, and volumes to be published again.
const csiDriver = `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: csi.deckhand.test}, spec: {attachRequired: false, podInfoOnMount: true,
  requiresRepublish: true, tokenRequests: [{audience: vault, expirationSeconds: 3600}], volumeLifecycleModes: [Ephemeral, Persistent]}}
---
`

// csiVolumes is a pod with an inline volume, whose Secret the driver gets, and a claim's volume.
const csiVolumes = `apiVersion: v1
kind: Pod
metadata: {name: csi}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: c, image: %s, args: [serve], volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}]
  volumes:
  - {name: a, csi: {driver: csi.deckhand.test, nodePublishSecretRef: {name: csi}}}
  - {name: b, persistentVolumeClaim: {claimName: csi}}
---
{apiVersion: v1, kind: Secret, metadata: {name: csi}, stringData: {user: canary-4711}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: csi}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: csi,
  csi: {driver: csi.deckhand.test, volumeHandle: h1}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: csi}, spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: 1Mi}}}}
---
`

// csi: pods have volumes of a CSI driver, with no more than a node's rights: it registers, gets pod information, a token
// and a Secret, and pods wait for its CSIDriver object.
func (r *rig) csi(t *testing.T) {
	d := driver.Start(t, driver.Options{Registration: filepath.Join(r.RootDir, "plugins_registry", "csi.sock"), Below: []string{r.RootDir},
		NodeID: "id-1", Capabilities: []string{"STAGE_UNSTAGE_VOLUME"}, Args: []string{"--topology", "example.com/rack=r1"}})
	r.Eventually("the driver is in the node's objects", func() error {
		got := r.kubectl("get", "csinode", r.name, "-o", "jsonpath={.spec.drivers[*].name} {.spec.drivers[*].nodeID}") + " " +
			r.kubectl("get", "node", r.name, "-o", `jsonpath={.metadata.labels.example\.com/rack}`)
		if got != "csi.deckhand.test id-1 r1" {
			return errors.New(got)
		}
		return nil
	})
	r.apply(fmt.Sprintf(csiVolumes, node.Image))
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
			inline != (secrets["user"] == "canary-4711") {
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
