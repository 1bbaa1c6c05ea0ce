package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// put has a manifest of objects in the directory.
func (r *rig) put(name, text string) {
	r.t.Helper()
	staged := r.path("staged")
	if err := errors.Join(os.WriteFile(staged, []byte(text), 0o600), os.Rename(staged, r.path("manifests/"+name+".yaml"))); err != nil {
		r.t.Fatal(err)
	}
}

// awaitPod waits until what the agent reports of a pod looks right; problem says what isn't.
func (r *rig) awaitPod(name string, problem func(local.PodView) string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 40*time.Second)
	defer cancel()
	last := "the agent reports nothing of it"
	for s, err := range r.client().Watch(ctx) {
		if err != nil {
			r.t.Fatalf("pod %s: %v; %s", name, err, last)
		}
		for _, v := range s.Pods {
			if v.Pod.Name != name+"-n" {
				continue
			}
			if last = problem(v); last == "" {
				return
			}
		}
	}
	r.t.Fatalf("pod %s: still not so: %s", name, last)
}

// waitsFor waits until a pod's reasons, which have a line each, have all of these.
func (r *rig) waitsFor(name string, says ...string) {
	r.t.Helper()
	r.awaitPod(name, func(v local.PodView) string {
		reported := v.Waiting()
		if strings.Contains(reported, "\n") {
			r.t.Errorf("a wait of several lines: %q", reported)
		}
		for _, s := range says {
			if !strings.Contains(reported, s) {
				return fmt.Sprintf("no %q in %s", s, reported)
			}
		}
		return ""
	})
}

// ended waits until a pod is reported to have ended so.
func (r *rig) ended(name string, phase v1.PodPhase, reason string) {
	r.t.Helper()
	r.awaitPod(name, func(v local.PodView) string {
		if st := v.Pod.Status; st.Phase != phase || st.Reason != reason {
			return fmt.Sprintf("its phase is %s, its reason %q", st.Phase, st.Reason)
		}
		return ""
	})
}

// mount is where a container has a path of its own on the host.
func (r *rig) mount(container, path string) string {
	r.t.Helper()
	for _, m := range r.newest(container).Mounts {
		if m.ContainerPath == path {
			return m.HostPath
		}
	}
	r.t.Fatalf("%s has nothing at %s", container, path)
	return ""
}

// volumesOf is where the volumes of a container's pod are.
func (r *rig) volumesOf(container string) string {
	return r.path("root/pods/" + r.newest(container).Labels[kubelettypes.KubernetesPodUIDLabel] + "/volumes")
}

// awaitChange waits until what a directory holds looks right.
func (r *rig) awaitChange(dir string, problem func() string) {
	r.t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.t.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		r.t.Fatal(err)
	}
	late := time.NewTimer(40 * time.Second)
	defer late.Stop()
	for p := problem(); p != ""; p = problem() {
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			r.t.Fatal(err)
		case <-late.C:
			r.t.Fatalf("%s: still not so: %s", dir, p)
		}
	}
}

// reads reports what keeps a file from having this text.
func reads(path, want string) func() string {
	return func() string {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			return fmt.Sprintf("%s has %q, %v", path, text, err)
		}
		return ""
	}
}

// volume is a directory of the host as a local PersistentVolume, with the name in a file in it.
func (r *rig) volume(name string) string {
	r.t.Helper()
	dir := r.path("disk-" + name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: ["n"]}]}]}}
`, name, dir)
}

func claim(name string) string {
	return "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
}

func configMap(name, data string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {" + data + "}\n"
}

// withVolumes is the spec of a pod that has these volumes, each at its name.
func withVolumes(volumes map[string]string, more ...string) string {
	spec := "  terminationGracePeriodSeconds: 1\n" + strings.Join(more, "") + "  volumes:\n"
	mounts := ""
	for name, source := range volumes {
		spec += "  - {name: " + name + ", " + source + "}\n"
		mounts += "{name: " + name + ", mountPath: /" + name + "}, "
	}
	return spec + "  containers: [{name: main, image: \"IMAGE\", volumeMounts: [" + mounts + "]COMMAND}]\n"
}

// uses is the spec of a pod that uses a claim.
func uses(claim string) string {
	return endless(map[string]string{"data": "persistentVolumeClaim: {claimName: " + claim + "}"})
}

// endless is the spec of a pod that runs on.
func endless(volumes map[string]string) string {
	return strings.ReplaceAll(withVolumes(volumes), "COMMAND", "")
}

// once is the spec of a pod that does its work and has ended.
func once(volumes map[string]string) string {
	return strings.ReplaceAll(withVolumes(volumes, "  restartPolicy: Never\n"), "COMMAND", `, command: [exit, "0"]`)
}

// undisturbed wants the first instance of a container to run.
func (r *rig) undisturbed(container string) {
	r.t.Helper()
	if c := r.newest(container); c == nil || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || c.Metadata.Attempt != 0 {
		r.t.Errorf("%s was disturbed:\n%s", container, r.describe())
	}
}

// TestAnEditReachesARunningPod: what its volume shows of a ConfigMap is written anew, also by the next agent.
func TestAnEditReachesARunningPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.put("config", configMap("app", "greeting: one"))
	r.want("web", endless(map[string]string{"config": "configMap: {name: app}"}))
	r.await("up", r.running("web/main"))
	dir := r.mount("web/main", "/config")
	file := filepath.Join(dir, "greeting")
	r.awaitChange(dir, reads(file, "one"))
	r.put("config", configMap("app", "greeting: two"))
	r.awaitChange(dir, reads(file, "two"))
	r.stop()
	r.put("config", configMap("app", "other: x, greeting: three"))
	r.up()
	r.awaitChange(dir, reads(file, "three"))
	r.awaitChange(dir, reads(filepath.Join(dir, "other"), "x"))
	r.undisturbed("web/main")
}

// TestAPodWaitsForWhatItsVolumesAreMadeFrom, reports each, and goes on when it appears.
func TestAPodWaitsForWhatItsVolumesAreMadeFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.want("web", endless(map[string]string{"config": "configMap: {name: app}", "data": "persistentVolumeClaim: {claimName: data}"}))
	r.waitsFor("web", `ConfigMap "app" (namespace default) isn't there: create it`, `persistentvolumeclaim "data" not found`)
	r.put("config", configMap("app", "greeting: one"))
	r.put("claim", claim("data"))
	r.waitsFor("web", "PersistentVolumeClaim default/data: there is no PersistentVolume for it")
	if n := r.Calls("CreateContainer"); n > 0 {
		t.Errorf("%d containers were made without their volumes", n)
	}
	r.put("volume", r.volume("a"))
	r.await("up", r.running("web/main"))
	for path, want := range map[string]string{"/config/greeting": "one", "/data/name": "a"} {
		if p := reads(filepath.Join(r.mount("web/main", filepath.Dir(path)), filepath.Base(path)), want)(); p != "" {
			t.Error(p)
		}
	}
	r.unwant("web")
	r.await("down", r.nothing(""))
}

// TestVolumesOfAFinishedPodAreReleased while the pod stays known, and stay so.
func TestVolumesOfAFinishedPodAreReleased(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.put("objects", configMap("app", "greeting: one")+claim("data")+r.volume("a"))
	r.want("job", once(map[string]string{"config": "configMap: {name: app}", "data": "persistentVolumeClaim: {claimName: data}", "scratch": "emptyDir: {}"}))
	r.ended("job", v1.PodSucceeded, "")
	volumes := r.volumesOf("job/main")
	released := func() string {
		if _, err := os.Lstat(volumes); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s is there, %v", volumes, err)
		}
		return ""
	}
	r.await("released", released)
	r.restart()
	r.put("objects", configMap("app", "greeting: two")+claim("data")+r.volume("a"))
	r.put("others", configMap("other", "greeting: two"))
	r.want("next", endless(map[string]string{"config": "configMap: {name: other}", "data": "persistentVolumeClaim: {claimName: data}"}))
	r.await("the next", r.running("next/main")) // with the claim in common
	r.ended("job", v1.PodSucceeded, "")
	if p := released(); p != "" {
		t.Error(p)
	}
	if p := reads(r.path("disk-a/name"), "a")(); p != "" {
		t.Errorf("data are lost: %s", p)
	}
	r.unwant("next")
	r.unwant("job")
	r.await("down", r.nothing(""))
}

// TestAClaimStaysBoundWhileAPodUsesIt: over restarts, and when its manifest and its volume's are gone and others come
// in their place. It is let go of when the pod is gone.
func TestAClaimStaysBoundWhileAPodUsesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.put("claim", claim("data"))
	r.put("volume", r.volume("b"))
	r.want("web", uses("data"))
	r.await("up", r.running("web/main"))
	r.put("better", r.volume("a")) // which comes too late
	r.restart()
	r.put("other", claim("other"))
	r.want("next", uses("other"))
	r.await("both run", r.running("web/main", "next/main"))
	if p := reads(filepath.Join(r.mount("next/main", "/data"), "name"), "a")(); p != "" {
		t.Errorf("the other claim has the volume of the first: %s", p)
	}
	r.unwant("next")
	r.await("one runs", r.running("web/main"))

	for _, name := range []string{"claim", "volume", "better", "other"} {
		r.unwant(name)
	}
	r.put("third", claim("third"))
	r.want("third-pod", uses("third"))
	const none = "PersistentVolumeClaim default/third: there is no PersistentVolume for it"
	const used = "b was released by PersistentVolumeClaim default/data, and pods that used that before use it still"
	r.waitsFor("third-pod", none)
	r.put("volume", r.volume("b"))
	r.waitsFor("third-pod", used)
	r.unwant("volume")
	r.waitsFor("third-pod", none)
	r.restart()
	r.waitsFor("web", `persistentvolumeclaim "data" not found`)
	r.waitsFor("third-pod", none)
	r.put("volume", r.volume("b"))
	r.waitsFor("third-pod", used)
	r.undisturbed("web/main")

	r.unwant("volume")
	r.waitsFor("third-pod", none)
	r.unwant("web")
	r.await("gone", r.nothing("web"))
	r.await("let go", func() string { // without an edit
		const former = `{"volume":"b","claim":{"namespace":"default","name":"data"},"former":true}`
		if text, err := os.ReadFile(r.bindings()); err != nil || !strings.Contains(string(text), former) {
			return fmt.Sprintf("%s, %v", text, err)
		}
		return ""
	})
	r.put("volume", r.volume("b"))
	r.await("the third", r.running("third-pod/main"))
	r.unwant("third-pod")
	r.await("down", r.nothing(""))
}

// TestAFileThatComesBack with pods, claims and volumes: each pod finds its own data.
func TestAFileThatComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	document := func(name string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" + strings.ReplaceAll(uses(name), "IMAGE", image)
	}
	objects := r.volume("a") + r.volume("b") + claim("one") + claim("two")
	r.put("all", objects+document("two"))
	r.await("the second", r.running("two/main"))
	found := func() string {
		for name, volume := range map[string]string{"one": "b", "two": "a"} {
			if p := reads(filepath.Join(r.mount(name+"/main", "/data"), "name"), volume)(); p != "" {
				return p
			}
		}
		return ""
	}
	for range 3 {
		r.put("all", document("one")+document("two")+objects)
		r.await("both", r.running("one/main", "two/main"))
		if p := found(); p != "" {
			t.Fatal(p)
		}
		r.unwant("all")
		r.await("down", r.nothing(""))
		r.await("let go", func() string {
			text, err := os.ReadFile(r.bindings())
			if err != nil || strings.Count(string(text), `"former":true`) != 2 {
				return fmt.Sprintf("%s, %v", text, err)
			}
			return ""
		})
	}
}

// bindings is the record of which claim has which volume.
func (r *rig) bindings() string { return r.path("root/checkpoints/volumes/bindings.json") }

// TestAPodOfWhichOnlyAClaimIsLeft is forgotten: of one that an agent was killed over there may be no directory.
func TestAPodOfWhichOnlyAClaimIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.put("objects", claim("data")+r.volume("a"))
	scratch := "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"
	r.put("more", r.volume("b"))
	r.want("web", uses("data"))
	r.await("up", r.running("web/main"))
	r.want("scratchy", endless(map[string]string{"data": scratch}))
	r.await("both", r.running("web/main", "scratchy/main"))
	r.stop()
	record, err := os.ReadFile(r.bindings())
	if err != nil {
		t.Fatal(err)
	}
	r.up()
	r.unwant("web")
	r.unwant("scratchy")
	r.await("down", r.nothing(""))
	r.await("no directories", func() string {
		left, err := filepath.Glob(r.path("root/pods/*"))
		if err != nil || len(left) > 0 {
			return fmt.Sprint(left, err)
		}
		return ""
	})
	r.stop()
	if err := os.WriteFile(r.bindings(), record, 0o600); err != nil { // as of a copy
		t.Fatal(err)
	}
	r.up()
	r.await("forgotten", func() string {
		text, err := os.ReadFile(r.bindings())
		if err != nil || strings.Contains(string(text), `"users"`) || !strings.Contains(string(text), `"released":true`) {
			return fmt.Sprintf("%s, %v", text, err)
		}
		return ""
	})
}

// TestADamagedRecordOfClaims disturbs no pod that runs, and gives nobody its volume: what to do is reported, and helps.
func TestADamagedRecordOfClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.put("objects", r.volume("a")+claim("data"))
	r.want("web", uses("data"))
	r.await("up", r.running("web/main"))
	r.stop()
	if err := os.WriteFile(r.bindings(), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.up()
	const unknown = "its PersistentVolume can't be determined"
	r.waitsFor("web", "PersistentVolumeClaim default/data: "+unknown)
	r.put("other", claim("other"))
	r.want("next", uses("other"))
	r.waitsFor("next", "PersistentVolumeClaim default/other: "+unknown)
	r.put("objects", r.volume("a")+"  claimRef: {namespace: default, name: data}\n"+strings.Replace(claim("data"), "spec: {", "spec: {volumeName: a, ", 1))
	r.awaitPod("web", func(v local.PodView) string { return v.Waiting() })
	r.undisturbed("web/main")
	r.stop()
	if err := os.Remove(r.bindings()); err != nil {
		t.Fatal(err)
	}
	r.up()
	r.waitsFor("next", "PersistentVolumeClaim default/other: no PersistentVolume fits: a ")
	r.put("more", r.volume("b"))
	r.await("both", r.running("web/main", "next/main"))
	r.undisturbed("web/main")
	if p := reads(filepath.Join(r.mount("next/main", "/data"), "name"), "b")(); p != "" {
		t.Error(p)
	}
	r.unwant("next")
	r.unwant("web")
	r.await("down", r.nothing(""))
}

// TestAPodOverItsLimitIsEvicted: it fails, its volumes are released, and it stays so.
func TestAPodOverItsLimitIsEvicted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.want("hog", endless(map[string]string{"scratch": "emptyDir: {sizeLimit: 16Ki}"}))
	r.want("modest", endless(map[string]string{"scratch": "emptyDir: {sizeLimit: 1Mi}"}))
	r.await("up", r.running("hog/main", "modest/main"))
	for _, name := range []string{"hog", "modest"} {
		if err := os.WriteFile(filepath.Join(r.mount(name+"/main", "/scratch"), "file"), make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.ended("hog", v1.PodFailed, "Evicted")
	r.await("only the other runs", r.running("modest/main"))
	volumes := r.volumesOf("hog/main")
	r.await("released", func() string {
		if _, err := os.Lstat(volumes); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s is there, %v", volumes, err)
		}
		return ""
	})
	r.restart()
	r.want("other", plainSpec)
	r.await("the next agent", r.running("modest/main", "other/main"))
	r.ended("hog", v1.PodFailed, "Evicted")
	if n := r.newest("hog/main").Metadata.Attempt; n != 0 {
		t.Errorf("it was started again:\n%s", r.describe())
	}
	// The manifest is taken away and put back: that is another pod of the same UID.
	r.unwant("hog")
	r.await("gone", r.nothing("hog"))
	r.want("hog", endless(map[string]string{"scratch": "emptyDir: {sizeLimit: 16Ki}"}))
	r.await("up again", r.running("hog/main", "modest/main", "other/main"))
}
