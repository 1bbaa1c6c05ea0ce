package cluster_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestTakeOverCSI: a node with volumes of a CSI driver changes from the kubelet to deckhand and back. Each agent finds the
// other's volumes by their records and unmounts them; the driver isn't called for volumes that stay, and gets the same
// requests from both.
//
// A restarted kubelet stages and publishes what it finds mounted once more: it rebuilds its state from directories, and
// counts that as uncertain. Under the kubelet such repetitions are allowed if the requests are those of the first time;
// under deckhand they aren't.
func TestTakeOverCSI(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) {
		rig, kubelet := joinForBoth(t, p, binary)
		r := &csiRig{rig: rig, first: map[string]string{}, uids: map[string]string{}}
		r.driver = r.startDriver(driver.Options{Name: azureDisks})

		kubelet()
		r.created()
		r.is("True")
		r.apply(`{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: ` + azureDisks + `}, spec: {attachRequired: false,
  podInfoOnMount: true, volumeLifecycleModes: [Ephemeral, Persistent]}}`)
		r.add("csi-alpha")
		r.add("csi-bravo")
		r.checkCalls("the kubelet")
		r.Stop()

		r.takeOver("deckhand", r.Start)
		r.add("csi-delta")
		r.compare("csi-alpha", "csi-delta")
		r.remove("csi-alpha")
		r.checkCalls("deckhand")
		r.checkContainers("deckhand")
		r.driver.CheckLaw(t)
		r.Stop()

		r.repeats = true
		r.takeOver("the kubelet again", kubelet)
		r.add("csi-gamma")
		for _, name := range []string{"csi-bravo", "csi-delta", "csi-gamma"} {
			r.remove(name)
		}
		r.checkCalls("the kubelet again")
		r.checkContainers("the kubelet again")
		r.Stop()
		if left := r.mounted(); len(left) > 0 {
			t.Errorf("mounted at the end: %v", left)
		}
		if left, err := filepath.Glob(filepath.Join(r.devices(), "*")); err != nil || len(left) > 0 {
			t.Errorf("left of devices: %v, %v", left, err)
		}

		records := func() error {
			if left, err := filepath.Glob(filepath.Join(r.RootDir, "staged", "*")); err != nil || len(left) > 0 {
				return fmt.Errorf("%d records of devices, %v", len(left), err)
			}
			return nil
		}
		if records() == nil {
			t.Error("deckhand had recorded no device")
		}
		r.added, r.removed, r.repeats = nil, nil, false
		r.Start()
		r.Eventually("deckhand forgets the devices that the kubelet has unstaged", records)
		r.checkCalls("deckhand without pods")
		r.Stop()
		s, err := r.driver.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.Violations {
			if v.Rule != "stage-while-published" { // the repeated calls to stage volumes
				t.Errorf("the law of calls: %+v", v)
			}
		}
		r.kubectl("delete", "csidriver", "--all", "--timeout=60s")
	})
}

// azureDisks is the driver's name: it has replaced the kind azureDisk, so that volumes of that kind are its as well.
const azureDisks = "disk.csi.azure.com"

// csiRig is a node with a CSI driver. Its pods have five inline volumes and five claims each, and two azureDisks.
type csiRig struct {
	*rig
	driver *driver.Process
	// uids are those of pods that are there, by their names.
	uids map[string]string
	// first is the first request for what a volume has, by callKey.
	first map[string]string
	// checked is the last call that checkCalls has seen.
	checked int
	// added and removed are the pods of the agent that runs.
	added, removed []string
	// repeats says that the agent may stage and publish again what it finds.
	repeats bool
	// instances are all that the runtime had of the pods when an agent stopped.
	instances map[string]node.Instance
}

// devices is the directory of staged volumes.
func (r *csiRig) devices() string {
	return filepath.Join(r.RootDir, "plugins/kubernetes.io/csi", azureDisks)
}

// These are how many inline volumes and claims a pod has, and how many of its volumes are staged and published.
const (
	csiVolumesEach = 5
	csiStaged      = csiVolumesEach + 2
	csiPublished   = 2*csiVolumesEach + 2
)

// handles are those of a pod's staged volumes.
func handles(name string) []string {
	list := []string{"/subscriptions/" + name + "/inline", "/subscriptions/" + name + "/claim"}
	for i := range csiVolumesEach {
		list = append(list, fmt.Sprintf("%s/%d", name, i))
	}
	return list
}

// add runs a pod with its volumes.
func (r *csiRig) add(name string) {
	r.t.Helper()
	var objects, volumes strings.Builder
	claim := func(id, source string) {
		objects.WriteString(claimed(name+"-"+id, source, "labels: {pod: "+name+"}"))
	}
	add := func(id, source string) { fmt.Fprintf(&volumes, "{name: %s, %s}, ", id, source) }
	disk := func(id string) string {
		return fmt.Sprintf("azureDisk: {diskName: d, diskURI: /subscriptions/%s/%s, kind: Managed}", name, id)
	}
	for i := range csiVolumesEach {
		claim(strconv.Itoa(i), fmt.Sprintf(`csi: {driver: %s, volumeHandle: %s/%d, fsType: ext4, volumeAttributes: {number: "%[3]d"}}`, azureDisks, name, i))
		add(fmt.Sprintf("claim-%d", i), fmt.Sprintf("persistentVolumeClaim: {claimName: %s-%d}", name, i))
		add(fmt.Sprintf("inline-%d", i), fmt.Sprintf(`csi: {driver: %s, volumeAttributes: {number: "%d"}}`, azureDisks, i))
	}
	claim("disk", disk("claim"))
	add("disk-claim", fmt.Sprintf("persistentVolumeClaim: {claimName: %s-disk}", name))
	add("disk-inline", disk("inline"))
	r.apply(objects.String() + podNamed(name, spec("[serve]", "volumes: ["+volumes.String()+"],")))
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
	r.uids[name] = string(r.pod(name).UID)
	r.added = append(r.added, name)
}

// remove removes a pod, and waits until nothing is left of it and its volumes.
func (r *csiRig) remove(name string) {
	r.t.Helper()
	r.kubectl("delete", "pod", name, "--timeout=180s")
	r.Eventually("nothing is left of pod "+name, func() error {
		left, err := filepath.Glob(filepath.Join(r.RootDir, "pods", r.uids[name]+"*"))
		for _, handle := range handles(name) {
			device, err2 := filepath.Glob(r.device(handle) + "*")
			left, err = append(left, device...), errors.Join(err, err2)
		}
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("there are %v", left))
		}
		return err
	})
	r.kubectl("delete", "pvc,pv", "-l", "pod="+name, "--timeout=60s")
	r.removed = append(r.removed, name)
}

// device is the directory of the staged volume with a handle.
func (r *csiRig) device(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return filepath.Join(r.devices(), hex.EncodeToString(sum[:]))
}

// takeOver starts an agent, and waits until it has taken over all volumes.
func (r *csiRig) takeOver(who string, start func()) {
	r.t.Helper()
	r.added, r.removed, r.instances = nil, nil, r.Instances()
	volumes, err := filepath.Glob(filepath.Join(r.RootDir, "pods/*/volumes/*/*"))
	if err != nil || len(volumes) < 2*csiPublished {
		r.t.Fatalf("there are the volumes %v, %v", volumes, err)
	}
	start()
	r.is("True")
	r.Eventually(who+" has taken over all volumes", func() error {
		page, err := http.Get(r.ReadOnlyURL("metrics"))
		if err != nil {
			return err
		}
		defer page.Body.Close()
		text, err := io.ReadAll(page.Body)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if value, ok := bytes.CutPrefix(line, []byte("reconstruct_volume_operations_total ")); ok {
				if n, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64); err != nil || int(n) < len(volumes) {
					return fmt.Errorf("%s of %d, %w", bytes.TrimSpace(value), len(volumes), err)
				}
				return nil
			}
		}
		return errors.New("the metric is missing")
	})
}

// callKey identifies what a call makes or removes: the same for a call and its repetition.
func callKey(c driver.Call) string { return c.Method + " " + c.Volume + " " + c.Target }

// checkCalls checks the driver's calls since the last time.
func (r *csiRig) checkCalls(who string) {
	r.t.Helper()
	s, err := r.driver.State(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	count, repeated := map[string]int{}, 0
	for _, c := range s.Calls {
		if c.Seq <= r.checked {
			continue
		}
		r.checked = c.Seq
		method, ok := strings.CutPrefix(c.Method, "Node")
		if !ok || !strings.HasSuffix(method, "Volume") {
			continue
		}
		if c.Code != "OK" {
			r.t.Errorf("under %s: %s of %s: %s %s", who, c.Method, c.Volume, c.Code, c.Message)
		}
		name := r.podOf(c)
		before, made := r.first[callKey(c)]
		switch {
		case !made && (method == "StageVolume" || method == "PublishVolume"):
			r.first[callKey(c)] = request(r.t, c)
			if !slices.Contains(r.added, name) {
				r.t.Errorf("under %s: %s of %s, which it has found: %s", who, method, name, c.Request)
			}
		case !made:
			if !slices.Contains(r.removed, name) {
				r.t.Errorf("under %s: %s of %s, which stays: %s", who, method, name, c.Request)
			}
		case r.repeats && !slices.Contains(r.added, name):
			repeated++
			if diff := cmp.Diff(before, request(r.t, c)); diff != "" {
				r.t.Errorf("under %s: the repeated %s of %s has other arguments:\n%s", who, method, name, diff)
			}
			continue
		default:
			r.t.Errorf("under %s: %s of %s again: %s", who, method, name, c.Request)
		}
		count[name+" "+method]++
	}
	want := map[string]int{}
	for _, name := range r.added {
		want[name+" StageVolume"], want[name+" PublishVolume"] = csiStaged, csiPublished
	}
	for _, name := range r.removed {
		want[name+" UnstageVolume"], want[name+" UnpublishVolume"] = csiStaged, csiPublished
	}
	if diff := cmp.Diff(want, count); diff != "" {
		r.t.Errorf("under %s, calls (-want +got):\n%s", who, diff)
	}
	r.t.Logf("under %s: %v, and %d repeated calls", who, count, repeated)
}

// checkContainers checks that no container of a pod that stays was restarted.
func (r *csiRig) checkContainers(who string) {
	r.t.Helper()
	now := r.Instances()
	for id, before := range r.instances {
		if !slices.ContainsFunc(r.removed, func(name string) bool { return before.Pod == name }) && now[id] != before {
			r.t.Errorf("under %s: %+v was %+v", who, now[id], before)
		}
	}
	for id, i := range now {
		if _, had := r.instances[id]; !had && !slices.Contains(r.added, i.Pod) {
			r.t.Errorf("under %s: %+v is new", who, i)
		}
	}
}

// podOf is the name of the pod whose volume a call is for.
func (r *csiRig) podOf(c driver.Call) string {
	for name, uid := range r.uids {
		if strings.Contains(c.Volume, name+"/") || strings.Contains(c.Target, "/pods/"+uid+"/") {
			return name
		}
	}
	return "an unknown pod"
}

func request(t *testing.T, c driver.Call) string {
	t.Helper()
	var text bytes.Buffer
	if err := json.Compact(&text, c.Request); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

var hash = regexp.MustCompile("[0-9a-f]{64}")

// compare compares the requests and records for the volumes of two pods, one of the kubelet's and one of deckhand's.
func (r *csiRig) compare(kubelets, deckhands string) {
	r.t.Helper()
	s, err := r.driver.State(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	plain := func(name, text string) string {
		return hash.ReplaceAllString(strings.NewReplacer(r.uids[name], "UID", name, "POD").Replace(text), "HASH")
	}
	requests := func(name string) (list []string) {
		for _, c := range s.Calls {
			if (c.Method == "NodeStageVolume" || c.Method == "NodePublishVolume") && r.podOf(c) == name {
				list = append(list, c.Method+" "+plain(name, request(r.t, c)))
			}
		}
		slices.Sort(list)
		return list
	}
	theirs := requests(kubelets)
	if diff := cmp.Diff(theirs, requests(deckhands)); diff != "" || len(theirs) != csiStaged+csiPublished {
		r.t.Errorf("%d requests (-kubelet's +deckhand's):\n%s", len(theirs), diff)
	}
	records := func(name string) map[string]map[string]string {
		paths, err := filepath.Glob(filepath.Join(r.RootDir, "pods", r.uids[name], "volumes/kubernetes.io~csi/*/vol_data.json"))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, handle := range handles(name) {
			paths = append(paths, filepath.Join(r.device(handle), "vol_data.json"))
		}
		list := map[string]map[string]string{}
		for i, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				r.t.Fatal(err)
			}
			of := map[string]string{}
			if err := json.Unmarshal([]byte(plain(name, string(text))), &of); err != nil {
				r.t.Fatal(err)
			}
			maps.DeleteFunc(of, func(key, _ string) bool { return strings.HasPrefix(key, "deckhand.io/") })
			list[fmt.Sprintf("%d %s", i, of["specVolID"])] = of
		}
		return list
	}
	was := records(kubelets)
	if diff := cmp.Diff(was, records(deckhands)); diff != "" || len(was) != csiStaged+csiPublished {
		r.t.Errorf("%d records (-kubelet's +deckhand's):\n%s", len(was), diff)
	}
}
