package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// story is a pod's life in phases.
type story []phase

// phase is one thing that happens to the pod, and what is to come of it.
type phase struct {
	name  string
	begin func(*life)
	goal  func(*life) string
	// skipped says that no agent is killed in it, as another story has the same.
	skipped bool
}

// longLife is that of a pod that runs until it isn't wanted any more, shortLife that
// of one that does its work at the second try, objectLife that of one whose object is deleted, debuggedLife that of one to which a
// person adds a container.
var (
	longLife = story{
		{"up", func(l *life) { l.policy = "Always"; l.want() }, (*life).ready, false},
		{"rest", (*life).rest, (*life).steady, false},
		{"resize", func(l *life) { l.cpu, l.memory = 200, 32; l.want() }, (*life).ready, false},
		{"image", func(l *life) { l.image = "example.com/app:3"; l.attempts["main"]++; l.want() }, (*life).ready, false},
		{"crash", func(l *life) { l.attempts["main"]++; l.exit(1) }, (*life).ready, false},
		{"restart all", (*life).restartAll, (*life).ready, false},
		{"down", (*life).end, (*life).gone, false},
	}
	shortLife = story{
		{"up", func(l *life) { l.policy = "OnFailure"; l.want() }, (*life).ready, true},
		{"retry", func(l *life) { l.attempts["main"]++; l.exit(1) }, (*life).ready, true},
		{"success", func(l *life) { l.exit(0) }, (*life).succeeded, false},
		{"after it", func(l *life) { l.kill("it rests") }, (*life).succeeded, false},
		{"down", (*life).end, (*life).gone, false},
	}
	objectLife = story{
		{"up", func(l *life) { l.policy = "Always"; l.annotations = graceAnnotation + `: ""`; l.want() }, (*life).ready, true},
		{"deletion", func(l *life) { l.annotations = graceAnnotation + `: "600"`; l.want() }, (*life).final, false},
		{"after it", func(l *life) { l.kill("it has ended") }, (*life).final, false},
		{"down", (*life).end, (*life).gone, false},
	}
	debuggedLife = story{
		{"up", func(l *life) { l.policy = "Always"; l.want() }, (*life).ready, true},
		{"debug", func(l *life) { l.attempts["debugger"] = 0 }, (*life).debugged, false},
		{"after it", func(l *life) { l.kill("it is debugged") }, (*life).debugged, false},
		{"down", (*life).end, (*life).gone, false},
	}
)

// life is a pod's in a world, with claims of both kinds: an init container, a sidecar with a postStart hook,
// and a main container with both hooks, a readiness probe and an image to be pulled.
type life struct {
	*world
	policy, image string
	// cpu in millicores and memory in MiB are the main container's.
	cpu, memory int
	attempts    map[string]int
	annotations string
	// endBy and last are by when it has to end, and in which state it ended, as one agent had them.
	endBy time.Time
	last  string
}

func newLife(w *world) *life {
	l := &life{world: w, image: "example.com/app:2", cpu: 100, memory: 64, attempts: map[string]int{"setup": 0, "side": 0, "main": 0}}
	w.SetExec(func(*runtimeapi.ContainerStatus, []string) memcri.ExecResult {
		return memcri.ExecResult{Takes: 5 * time.Millisecond}
	})
	w.put("objects", w.volume("kept")+w.volume("own")+claim("kept"))
	return l
}

const podName = "a"

func (l *life) want() {
	l.world.wantAnnotated(podName, l.annotations, fmt.Sprintf(`  terminationGracePeriodSeconds: 5
  restartPolicy: %[1]s
  volumes:
  - {name: data, emptyDir: {}}
  - {name: kept, persistentVolumeClaim: {claimName: kept}}
  - {name: own, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  initContainers:
  - {name: setup, image: "IMAGE", command: [exit, "0"], resources: {limits: {cpu: 10m, memory: 16Mi}}}
  - name: side
    image: "IMAGE"
    restartPolicy: Always
    resources: {limits: {cpu: 10m, memory: 16Mi}}
    lifecycle: {postStart: {exec: {command: [poststart]}}}
  containers:
  - name: main
    image: "%[2]s"
    restartPolicy: %[1]s
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
    resources: {limits: {cpu: %[3]dm, memory: %[4]dMi}}
    lifecycle: {postStart: {exec: {command: [poststart]}}, preStop: {exec: {command: [prestop]}}}
    readinessProbe: {exec: {command: [ready]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}, {name: kept, mountPath: /kept}, {name: own, mountPath: /own}]
`, l.policy, l.image, l.cpu, l.memory))
}

// exit has the main container end.
func (l *life) exit(code int32) {
	if err := l.Exit(l.newest(podName+"/main").Id, code, ""); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) restartAll() {
	l.callLog.killsAtOnce(true)
	for name := range l.attempts {
		l.attempts[name]++
	}
	l.exit(88)
}

func (l *life) end() {
	l.callLog.killsAtOnce(false)
	l.unwant(podName)
}

// volumes counts the volumes that pods have.
func (l *life) volumes() int {
	found, err := filepath.Glob(l.path("root/pods/*/volumes/*/data"))
	if err != nil {
		l.t.Error(err)
	}
	return len(found)
}

// ready reports what keeps the pod from being ready with the instances it should have.
func (l *life) ready() string {
	if l.volumes() != 1 {
		return "its volume isn't there"
	}
	if p := l.running(podName+"/side", podName+"/main")(); p != "" {
		return p
	}
	if p := l.instances(); p != "" {
		return p
	}
	for _, name := range []string{"kept", "own"} {
		if p := reads(l.mount(podName+"/main", "/"+name)+"/name", name)(); p != "" {
			return p
		}
	}
	p, problem := l.status()
	if problem != "" {
		return problem
	}
	if p.Status.Phase != v1.PodRunning || !holds(p, v1.PodReady) || p.Status.ObservedGeneration != p.Generation {
		return fmt.Sprintf("its phase is %s, its conditions %v", p.Status.Phase, p.Status.Conditions)
	}
	if holds(p, v1.PodResizeInProgress) || holds(p, v1.PodResizePending) {
		return "it is being resized"
	}
	return l.resources(p)
}

// debugged reports what keeps the pod from having its debugger, once. It is added as soon as an agent takes it.
func (l *life) debugged() string {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	p, problem := l.status()
	if problem != "" {
		return problem
	}
	if pod.ContainerNamed(p, "debugger") == nil {
		c := v1.EphemeralContainer{TargetContainerName: "main"}
		c.Name, c.Image = "debugger", "example.com/app:2"
		err := local.NewClient(local.SocketPath(l.path("root"))).AddContainer(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID, c)
		return fmt.Sprintf("it has no debugger; adding one: %v", err)
	}
	if p := l.running(podName+"/side", podName+"/main", podName+"/debugger")(); p != "" {
		return p
	}
	if p := l.instances(); p != "" {
		return p
	}
	states := p.Status.EphemeralContainerStatuses
	if len(states) != 1 || states[0].State.Running == nil || p.Generation != 2 || p.Status.ObservedGeneration != 2 || !holds(p, v1.PodReady) {
		return fmt.Sprintf("generation %d, of which %d is observed, has the ephemeral containers %+v", p.Generation, p.Status.ObservedGeneration, states)
	}
	return ""
}

// rest kills the agent once nothing is left to be done.
func (l *life) rest() {
	l.reach("readiness is on disk", func() string {
		kept, _ := filepath.Glob(l.path("root/checkpoints/pods/*/kept.json"))
		if len(kept) == 1 {
			if text, err := os.ReadFile(kept[0]); err == nil && strings.Contains(string(text), `"ready":[`) {
				return ""
			}
		}
		return "it isn't"
	})
	l.kill("it rests")
}

// steady is ready, of a pod that may not be reported to be anything else meanwhile.
func (l *life) steady() string {
	if p, problem := l.status(); problem == "" && len(p.Status.Conditions) > 0 && !holds(p, v1.PodReady) {
		l.t.Errorf("the pod is reported not to be ready any more: %v", p.Status.Conditions)
	}
	return l.ready()
}

// instances compares the instances that the runtime has with those there should be.
func (l *life) instances() string {
	count := map[string]int{}
	for _, c := range l.Containers() {
		count[c.Metadata.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(l.attempts)) {
		if c := l.newest(podName + "/" + name); c == nil || int(c.Metadata.Attempt) != l.attempts[name] {
			return fmt.Sprintf("the newest %s isn't #%d", name, l.attempts[name])
		}
		if count[name] > 2 {
			return fmt.Sprintf("there are %d instances of %s", count[name], name)
		}
	}
	if setup := l.newest(podName + "/setup"); setup.FinishedAt == 0 || setup.ExitCode != 0 {
		return "setup hasn't ended well"
	}
	return ""
}

// status is what the agent reports of the pod.
func (l *life) status() (*v1.Pod, string) {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	s, err := local.NewClient(local.SocketPath(l.path("root"))).Snapshot(ctx)
	if err != nil {
		return nil, err.Error()
	}
	if len(s.Pods) != 1 {
		return nil, fmt.Sprintf("%d pods are reported", len(s.Pods))
	}
	p := s.Pods[0].Pod
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		_, id, _ := strings.Cut(c.ContainerID, "://")
		if c.Started != nil && *c.Started && c.Name != "setup" && !l.callLog.hookDone(postStartHook, id) {
			l.t.Errorf("%s counts as started before its postStart hook has run", c.Name)
		}
		if int(c.RestartCount) > l.attempts[c.Name] {
			l.t.Errorf("%s has a restart count of %d, it was restarted %d times", c.Name, c.RestartCount, l.attempts[c.Name])
		}
		if int(c.RestartCount) < l.attempts[c.Name] {
			return nil, fmt.Sprintf("%s has a restart count of %d", c.Name, c.RestartCount)
		}
	}
	return p, ""
}

func holds(p *v1.Pod, typ v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == typ && c.Status == v1.ConditionTrue })
}

// resources compares what the main container and the pod's control group have with
// what they should have, and with what the status reports.
func (l *life) resources(p *v1.Pod) string {
	got := l.newest(podName + "/main").GetResources().GetLinux()
	if got.GetCpuQuota() != int64(l.cpu)*100 || got.GetMemoryLimitInBytes() != int64(l.memory)<<20 {
		return fmt.Sprintf("the main container has a quota of %d and %d bytes", got.GetCpuQuota(), got.GetMemoryLimitInBytes())
	}
	reported := p.Status.ContainerStatuses[0].Resources
	if reported == nil || reported.Limits.Cpu().MilliValue() != int64(l.cpu) || reported.Limits.Memory().Cmp(*resource.NewQuantity(int64(l.memory)<<20, resource.BinarySI)) != 0 {
		return fmt.Sprintf("the main container is reported to have %v", reported)
	}
	found := false
	for _, dir := range l.podCgroups() {
		for _, file := range []string{"cpu.cfs_quota_us", "cpu.max"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // the controller's or the version's other file
			}
			found = true
			if want := fmt.Sprint((l.cpu + 10) * 100); strings.Fields(string(text))[0] != want {
				return fmt.Sprintf("%s/%s is %s, not %s", dir, file, text, want)
			}
		}
	}
	if !found {
		return "the pod has no control group with a CPU limit"
	}
	return ""
}

var podCgroup = regexp.MustCompile(`^pod[0-9a-f-]+$`)

// podCgroups lists the pods' control groups, in every hierarchy.
func (l *life) podCgroups() (dirs []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		tops, err := filepath.Glob(pattern + filepath.Base(l.dir))
		if err != nil {
			l.t.Error(err)
		}
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && podCgroup.MatchString(d.Name()) {
					dirs = append(dirs, path)
				}
				return nil
			})
		}
	}
	return dirs
}

// succeeded reports what keeps the pod from having done its work, once.
func (l *life) succeeded() string {
	if p := l.running()(); p != "" {
		return p
	}
	if p := l.instances(); p != "" {
		return p
	}
	for _, sb := range l.Sandboxes() {
		if sb.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return "its sandbox is up"
		}
	}
	if l.volumes() > 0 {
		return "its volume is there"
	}
	p, problem := l.status()
	if problem == "" && p.Status.Phase != v1.PodSucceeded {
		problem = fmt.Sprintf("its phase is %s", p.Status.Phase)
	}
	return problem
}

// final reports what keeps the pod, whose object is still there, from having ended. No agent gives it another time than
// the first one that told of its end, nor another status.
func (l *life) final() string {
	for _, record := range l.checkpoints() {
		if end := record.EndBy; !end.IsZero() {
			if !l.endBy.IsZero() && !end.Equal(l.endBy) {
				l.t.Errorf("it had to end by %s, and by %s later", l.endBy, end)
			}
			l.endBy = end
		}
	}
	p, problem := l.status()
	if problem != "" {
		return problem
	}
	if pod.Terminal(p.Status.Phase) == "" {
		return fmt.Sprintf("its phase is %s", p.Status.Phase)
	}
	text, err := json.Marshal(p.Status)
	if err != nil {
		l.t.Fatal(err)
	}
	if l.last != "" && l.last != string(text) {
		l.t.Errorf("its final status was\n%s\nand is\n%s", l.last, text)
	}
	l.last = string(text)
	l.mu.Lock()
	died := len(l.deaths) > 0
	l.mu.Unlock()
	if l.endBy.IsZero() && !died { // the containers may have ended before the next agent came
		return "no record says by when it has to end"
	}
	if l.volumes() > 0 || len(l.podCgroups()) > 0 {
		return "its volume or its control group is there"
	}
	if p := l.running()(); p != "" {
		return p
	}
	return l.instances()
}

// checkpoints are the records on disk for the next agent.
func (l *life) checkpoints() (records []*pod.Checkpoint) {
	files, err := filepath.Glob(l.path("root/checkpoints/pods/*/kept.json"))
	if err != nil {
		l.t.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		k := new(pod.Checkpoint)
		if err := errors.Join(err, checkpoint.Open(text, 1, k)); err != nil {
			l.t.Errorf("%s: %v", file, err)
		}
		records = append(records, k)
	}
	return records
}

// claims reports what the pod still has of claims, and what became of their volumes.
func (l *life) claims() string {
	for _, name := range []string{"kept", "own"} {
		if p := reads(l.path("disk-"+name+"/name"), name)(); p != "" {
			l.t.Errorf("data are lost: %s", p)
		}
	}
	record, err := os.ReadFile(l.bindings())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	if text := string(record); strings.Contains(text, `"users"`) || strings.Count(text, `"pod":`) != strings.Count(text, `"released":true`) {
		return "it still has claims: " + text
	}
	return ""
}

// gone reports what is left of the pod: in the runtime, on disk, in what the agent reports.
func (l *life) gone() string {
	if p := l.nothing("")(); p != "" {
		return p
	}
	for _, pattern := range []string{"root/pods/*", "root/checkpoints/pods/*", "logs/*", "links/*", "root/journal/*.txtar", "root/journal/*/*"} {
		left, err := filepath.Glob(l.path(pattern))
		if err != nil {
			l.t.Error(err)
		}
		if len(left) > 0 {
			return fmt.Sprintf("%v are left", left)
		}
	}
	if dirs := l.podCgroups(); len(dirs) > 0 {
		return fmt.Sprintf("%v are left", dirs)
	}
	if p := l.claims(); p != "" {
		return p
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	s, err := local.NewClient(local.SocketPath(l.path("root"))).Snapshot(ctx)
	if err != nil {
		return err.Error()
	}
	if !s.Agent.Synced || len(s.Pods) > 0 {
		return fmt.Sprintf("%d pods are reported", len(s.Pods))
	}
	return ""
}
