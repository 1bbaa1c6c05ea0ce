package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// TestSanity: the driver is what the specification of CSI asks for, as Kubernetes' own csi-sanity checks it.
func TestSanity(t *testing.T) {
	sanity := filepath.Join(t.TempDir(), "csi-sanity")
	build := exec.Command("go", "build", "-trimpath", "-o", sanity, "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")
	build.Dir, build.Env = "sanity", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build csi-sanity: %v\n%s", err, out)
	}
	const limit = 3
	for name, o := range map[string]driver.Options{
		"everything": {Capabilities: []string{"STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP", "SINGLE_NODE_MULTI_WRITER",
			"GET_VOLUME_STATS", "EXPAND_VOLUME"}, Args: []string{"--enable-attach", "--topology", "zone=a",
			"--maxvolumespernode", strconv.Itoa(limit)}},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := driver.Start(t, o)
			cmd := exec.CommandContext(t.Context(), sanity, "--csi.endpoint", p.Endpoint, "--csi.mountdir",
				filepath.Join(p.Dir, "targets"), "--csi.stagingdir", filepath.Join(p.Dir, "stagings"), "--ginkgo.no-color",
				"--csi.testnodevolumeattachlimit="+strconv.FormatBool(o.Args != nil))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if mounts := driver.Mounts(t, p.Dir); len(mounts) > 0 {
				t.Errorf("mounts are left: %v", mounts)
			}
			s, err := p.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			methods := map[string]int{}
			for _, c := range s.Calls {
				methods[c.Method]++
			}
			t.Logf("%s\ncalls: %v", lastLines(out), methods)
			wanted := []string{"CreateVolume", "NodePublishVolume"}
			if o.Args != nil {
				wanted = append(wanted, "ControllerPublishVolume", "NodeStageVolume", "NodeGetVolumeStats", "NodeExpandVolume")
			}
			for _, method := range wanted {
				if methods[method] == 0 {
					t.Errorf("csi-sanity didn't call %s", method)
				}
			}
		})
	}
}

// lastLines returns the end of csi-sanity's report, with its numbers.
func lastLines(out []byte) string { return string(out[max(0, len(out)-120):]) }
