package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// sandboxWorld is what the making of a sandbox meets. What it doesn't implement isn't to be asked.
type sandboxWorld struct {
	Runtime
	Observer
	object.View
	dnsErr, runErr error
	resolved       int
	config         *runtimeapi.PodSandboxConfig
	handler        string
	events         []pod.Event
	classes        map[string]string
	overhead       v1.ResourceList
	ranges         map[types.UID]userns.Range
	orphans        []string
	source         pod.Source
	unknown        error
}

func (w *sandboxWorld) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	if w.unknown != nil {
		return nil, w.unknown
	}
	if handler, ok := w.classes[name]; ok {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		if w.overhead != nil {
			class.Overhead = &nodev1.Overhead{PodFixed: w.overhead}
		}
		return class, nil
	}
	return nil, apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), name)
}

func (w *sandboxWorld) Ensure(uid types.UID) (userns.Range, error) {
	if w.ranges == nil {
		w.ranges = map[types.UID]userns.Range{}
	}
	w.ranges[uid] = userns.Range{HostID: userns.Block, Length: userns.Block}
	return w.ranges[uid], nil
}

func (w *sandboxWorld) Get(uid types.UID) (userns.Range, error) {
	if r, ok := w.ranges[uid]; ok {
		return r, nil
	}
	return userns.Range{}, userns.ErrNone
}

func (w *sandboxWorld) Release(types.UID) error { return nil }

func (w *sandboxWorld) For(*v1.Pod) (*runtimeapi.DNSConfig, []pod.Event, error) {
	if w.dnsErr != nil {
		return nil, nil, w.dnsErr
	}
	w.resolved++
	return &runtimeapi.DNSConfig{Servers: []string{"10.0.0.1"}}, []pod.Event{{Reason: "DNSConfigForming"}}, nil
}

func (w *sandboxWorld) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	w.config, w.handler = config, handler
	return "sandbox", w.runErr
}

func (w *sandboxWorld) PodSandboxStatus(context.Context, string) (*runtimeapi.PodSandboxStatus, error) {
	return &runtimeapi.PodSandboxStatus{}, nil
}

func (w *sandboxWorld) Event(_ *v1.Pod, e pod.Event)                     { w.events = append(w.events, e) }
func (w *sandboxWorld) SandboxStarted(string, time.Duration, bool, bool) {}
func (w *sandboxWorld) ContainerStarted(string, bool)                    {}
func (w *sandboxWorld) RemovedContainer()                                {}
func (w *sandboxWorld) OrphanCleaned(uid types.UID, failed bool) {
	w.orphans = append(w.orphans, fmt.Sprint(uid, " ", failed))
}
func (w *sandboxWorld) RequestRefresh(types.UID) {}
func (w *sandboxWorld) runner() *Executor {
	able := &translate.Features{Handlers: map[string]translate.HandlerFeatures{"": {UserNamespaces: true}}}
	return New(Config{Runtime: w, Observer: w, Allocations: noAllocations{}, Cgroups: cgroupsOf{w}, DNS: w, Meter: w, Recorder: w, Objects: seen{w}, Users: w, HostIPs: func() []string { return nil },
		Settings: func() *translate.Settings { return &translate.Settings{} }, Features: func() *translate.Features { return able }, Parallel: 1, Log: logr.Discard()})
}

// known is what any pod sees, which becomes known after a while.
type known struct {
	seen
	awaits    int
	become    func(n int) bool
	forgotten []types.UID
}

func (k *known) Forget(uid types.UID) { k.forgotten = append(k.forgotten, uid) }

func (k *known) Await(context.Context, types.UID, time.Time) bool {
	k.awaits++
	return k.become(k.awaits)
}

// TestUnknownIsNoFailureAtOnce: an action goes on when more is known, as often as it takes, and fails if that doesn't come.
func TestUnknownIsNoFailureAtOnce(t *testing.T) {
	missing := &object.Unknown{Key: object.Key{Kind: object.RuntimeClass, Name: "strong"}, Why: "it is being asked for"}
	for name, tc := range map[string]struct {
		unknown error
		become  func(w *sandboxWorld, n int) bool
		awaits  int
		ok      bool
	}{
		"becomes known": {missing, func(w *sandboxWorld, n int) bool {
			if n == 2 {
				w.unknown = nil
			}
			return true
		}, 2, true},
		"stays unknown": {missing, func(*sandboxWorld, int) bool { return false }, 1, false},
		"isn't there":   {nil, nil, 0, false},
	} {
		w := &sandboxWorld{unknown: tc.unknown, source: pod.SourceAPI}
		if tc.unknown != nil {
			w.classes = map[string]string{"strong": "kata"}
		}
		e := w.runner()
		k := &known{seen: seen{w}, become: func(n int) bool { return tc.become(w, n) }}
		e.cfg.Objects = k
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, Spec: v1.PodSpec{RuntimeClassName: ptr.To("strong")}}
		r := e.Do(t.Context(), &pod.Desired{Pod: p, Source: w.source}, nil, p.UID, pod.Action{Kind: pod.CreateSandbox})
		if (r.Failure == nil) != tc.ok || k.awaits != tc.awaits || r.Failure != nil && r.Failure.Awaits.String() != "RuntimeClass strong" {
			t.Errorf("%s: %+v after %d waits", name, r.Failure, k.awaits)
		}
	}
}

// seen is what any pod sees.
type seen struct{ object.View }

func (s seen) For(*pod.Desired) object.View { return s.View }

func (seen) Await(context.Context, types.UID, time.Time) bool { return false }

func (seen) Forget(types.UID) {}

// cgroupsOf sets the control groups apart, whose methods have names of the users' too.
type cgroupsOf struct{ w *sandboxWorld }

func (c cgroupsOf) CgroupParent(*v1.Pod) string                             { return "" }
func (c cgroupsOf) Ensure(context.Context, *v1.Pod, allocated.Limits) error { return nil }
func (c cgroupsOf) Resize(context.Context, *v1.Pod, allocated.Limits) error { return nil }
func (c cgroupsOf) Remove(context.Context, types.UID) error                 { return nil }
func (c cgroupsOf) Thaw(context.Context, types.UID, string) error           { return nil }

func (w *sandboxWorld) create(ctx context.Context, change ...func(*v1.PodSpec)) pod.Result {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	for _, c := range change {
		c(&p.Spec)
	}
	return w.runner().Do(ctx, &pod.Desired{Pod: p, Source: w.source}, nil, p.UID, pod.Action{Kind: pod.CreateSandbox})
}

func TestSandboxGetsItsRuntimeClass(t *testing.T) {
	w := &sandboxWorld{}
	class := func(s *v1.PodSpec) { s.RuntimeClassName = ptr.To("strong") }
	r := w.create(t.Context(), class)
	if f := r.Failure; f == nil || f.Reason != "FailedCreatePodSandBox" || f.Awaits.String() != "RuntimeClass strong" || w.config != nil {
		t.Fatalf("without its RuntimeClass: %+v", f)
	}
	w.classes = map[string]string{"strong": "kata"}
	if r := w.create(t.Context(), class); r.Failure != nil || w.handler != "kata" {
		t.Errorf("%v, made with handler %q", r.Failure, w.handler)
	}
	// A class that is newer than what is known of the pod: no sandbox is made without its overhead.
	w.config, w.overhead, w.source = nil, v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m")}, pod.SourceFile
	if f := w.create(t.Context(), class).Failure; f == nil || f.Awaits != (pod.Object{}) || !strings.Contains(f.Message, "overhead") || w.config != nil {
		t.Errorf("without the overhead of its RuntimeClass: %+v", f)
	}
	other := func(s *v1.PodSpec) {
		class(s)
		s.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	}
	if f := w.create(t.Context(), other).Failure; f == nil || f.Awaits.String() != "RuntimeClass strong" || !strings.Contains(f.Message, "spec.overhead") || w.config != nil {
		t.Errorf("with other overhead than its RuntimeClass: %+v", f)
	}
	known := func(s *v1.PodSpec) { class(s); s.Overhead = w.overhead.DeepCopy() }
	if r := w.create(t.Context(), known); r.Failure != nil || w.config.GetLinux().GetOverhead().GetCpuShares() == 0 {
		t.Errorf("%v, made with %v", r.Failure, w.config.GetLinux().GetOverhead())
	}
	// An API server has admitted its pods by the class as it was then.
	w.source, w.config, w.handler = pod.SourceAPI, nil, ""
	if r := w.create(t.Context(), other); r.Failure != nil || w.handler != "kata" {
		t.Errorf("an API server's pod: %v, made with handler %q", r.Failure, w.handler)
	}
}

func TestSandboxGetsItsUsers(t *testing.T) {
	w := &sandboxWorld{}
	own := func(s *v1.PodSpec) { s.HostUsers = ptr.To(false) }
	if r := w.create(t.Context(), own); r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if m := w.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetUids(); len(m) != 1 || m[0].HostId != userns.Block {
		t.Errorf("mapped %v", m)
	}
	// A container never makes users for a sandbox that has none.
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "other"}}
	own(&p.Spec)
	if _, err := w.runner().sandboxConfig(p, &pod.Sandbox{ID: "a"}); !errors.Is(err, userns.ErrNone) {
		t.Errorf("a sandbox without users: %v", err)
	}
}

// unknowing has no services, and knows of nothing else.
type unknowing struct{ env.Objects }

func (unknowing) Services(context.Context, string) ([]*v1.Service, error) { return nil, nil }

func (unknowing) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return nil, &object.Unknown{Key: object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name}, Why: "it was asked for", NotBefore: time.Unix(1000, 0)}
}

// ledger answers AdmitPod. Whatever else is asked for fails.
type ledger struct {
	Allocations
	answer error
}

func (l ledger) Admit(context.Context, *v1.Pod) (*pod.Allocation, error) { return nil, l.answer }

func TestAdmissionIsTheLedgersAlone(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}}
	answer := &pod.Failure{Reason: "OutOfcpu", Rejected: true}
	for _, l := range []ledger{{}, {answer: answer}} {
		r := New(Config{Allocations: l, Parallel: 1, Log: logr.Discard()}).Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.AdmitPod})
		if l.answer == nil && r.Failure != nil || l.answer != nil && r.Failure != answer {
			t.Errorf("the ledger says %v: %v", l.answer, r.Failure)
		}
	}
}

// TestAnUnknownRuntimeClassIsWaitedFor: it is asked for again when somebody said that, and nothing fails for good.
func TestAnUnknownRuntimeClassIsWaitedFor(t *testing.T) {
	w := &sandboxWorld{unknown: &object.Unknown{Key: object.Key{Kind: object.RuntimeClass, Name: "strong"}, Why: "the API server doesn't answer", NotBefore: time.Unix(1000, 0)}}
	f := w.create(t.Context(), func(s *v1.PodSpec) { s.RuntimeClassName = ptr.To("strong") }).Failure
	if f == nil || f.Permanent || f.Rejected || f.Awaits.String() != "RuntimeClass strong" || !f.NotBefore.Equal(time.Unix(1000, 0)) || !strings.Contains(f.Message, "the API server doesn't answer") || w.config != nil {
		t.Errorf("got %+v", f)
	}
}

func TestConfigFailureNamesWhatIsMissing(t *testing.T) {
	_, _, err := env.Resolve(t.Context(), &v1.Pod{}, &v1.Container{Name: "web", EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}, Optional: ptr.To(true)}}}},
		env.Facts{}, env.Sources{Objects: unknowing{}})
	if got := configFailure(err); got.Awaits.String() != "ConfigMap conf" || !got.NotBefore.Equal(time.Unix(1000, 0)) || got.Permanent {
		t.Errorf("an optional object of which nobody can tell: %+v", got)
	}
	missing := &env.Error{Container: "web", Where: "environment variable A", Object: pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "conf"}}
	for name, tc := range map[string]struct {
		err  error
		want pod.Failure
	}{
		"an object":  {fmt.Errorf("wrapped: %w", missing), pod.Failure{Reason: "CreateContainerConfigError", Awaits: pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "conf"}}},
		"no object":  {&env.Error{Container: "web"}, pod.Failure{Reason: "CreateContainerConfigError"}},
		"has a name": {&pod.Failure{Reason: "Other", Permanent: true}, pod.Failure{Reason: "Other", Permanent: true}},
		"anything":   {errors.New("bad"), pod.Failure{Reason: "CreateContainerConfigError"}},
	} {
		got := *configFailure(tc.err)
		got.Message = ""
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// A full disk is told with what helps.
func TestFailureOfAFullDisk(t *testing.T) {
	full := fmt.Errorf("make the file: %w", &fs.PathError{Op: "open", Path: "/x", Err: unix.ENOSPC})
	const want = "make the file: open /x: no space left on device (free space or inodes on that disk: see df and df -i)"
	for _, f := range []*pod.Failure{configFailure(full), failure(pod.Action{Kind: pod.PreparePod}, full)} {
		if f.Message != want || !f.Disk {
			t.Errorf("%s: %q, want %q; a disk's trouble: %v", f.Reason, f.Message, want, f.Disk)
		}
	}
	if got := configFailure(errors.New("bad")); got.Message != "bad" || got.Disk {
		t.Errorf("another error: %+v", got)
	}
}

// Events about the pod's DNS are recorded once it has its sandbox, and not for each try.
func TestSandboxGetsDNS(t *testing.T) {
	w := &sandboxWorld{runErr: errors.New("no network")}
	if r := w.create(t.Context()); r.Failure == nil || len(w.events) > 0 {
		t.Fatalf("%v, told %v", r, w.events)
	}
	w.runErr = nil
	if r := w.create(t.Context()); r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if s := w.config.GetDnsConfig().GetServers(); len(s) != 1 || s[0] != "10.0.0.1" {
		t.Errorf("the runtime was given the servers %v", s)
	}
	if len(w.events) != 1 || w.events[0].Reason != "DNSConfigForming" {
		t.Errorf("told %v", w.events)
	}
}

func TestNoSandboxWithoutDNS(t *testing.T) {
	w := &sandboxWorld{dnsErr: errors.New("no resolv.conf")}
	r := w.create(t.Context())
	if r.Failure == nil || r.Failure.Reason != "FailedCreatePodSandBox" || r.Failure.Message != "no resolv.conf" || w.config != nil {
		t.Errorf("got %v, made %v", r.Failure, w.config)
	}
	// A sandbox that is there has what it needs: its containers start.
	config, err := w.runner().sandboxConfig(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, &pod.Sandbox{ID: "a"})
	if err != nil || config.DnsConfig != nil {
		t.Errorf("got %v, %v", config, err)
	}
}

// By the CRI the configuration of a sandbox doesn't change as long as it is there, whatever happens to the pod and the node.
func TestContainersAreGivenTheirSandboxsConfiguration(t *testing.T) {
	w := &sandboxWorld{}
	r := w.runner()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	made := r.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.CreateSandbox})
	if made.Failure != nil {
		t.Fatal(made.Failure)
	}
	sb := &pod.Sandbox{ID: made.ID}
	p = p.DeepCopy()
	p.Labels = map[string]string{"edited": "yes"}
	if config, err := r.sandboxConfig(p, sb); err != nil || !proto.Equal(config, w.config) || w.resolved != 1 {
		t.Errorf("got %v, %v; names were looked up %d times", config, err, w.resolved)
	}
	// The next agent makes it once more, for all containers.
	r = w.runner()
	first, err := r.sandboxConfig(p, sb)
	if err != nil || first.Metadata.Uid != "u" {
		t.Fatal(first, err)
	}
	if again, err := r.sandboxConfig(p, sb); err != nil || !proto.Equal(again, first) || w.resolved != 2 {
		t.Errorf("got %v, %v; names were looked up %d times", again, err, w.resolved)
	}
	// Another sandbox has another one.
	if next, err := r.sandboxConfig(p, &pod.Sandbox{ID: "next", Attempt: 1}); err != nil || next.Metadata.Attempt != 1 {
		t.Errorf("got %v, %v", next, err)
	}
	r.cfg.Volumes, r.cfg.Logs, r.cfg.Records, r.cfg.Allocations = cleaning{}, noLogs{}, noRecords{}, grants{}
	if done := r.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.CleanPod}); done.Failure != nil || len(r.sandboxes) != 0 {
		t.Errorf("%v, left %v", done.Failure, r.sandboxes)
	}
}

// nameless removes nothing of what can't be there.
type nameless struct{ cgroupsOf }

func (nameless) Remove(context.Context, types.UID) error { return errors.New("no such name") }

// thaws are the pods and containers whose processes were to run, before what they ran for.
type thaws struct {
	cgroupsOf
	Runtime
	Observer
	did []string
}

func (t *thaws) Thaw(_ context.Context, uid types.UID, container string) error {
	t.did = append(t.did, fmt.Sprintf("thaw %s %q", uid, container))
	return errors.New("not here") // which keeps nothing from being stopped
}

func (t *thaws) StopContainer(_ context.Context, id string, _ time.Duration) error {
	t.did = append(t.did, "stop "+id)
	return errors.New("enough")
}

func (t *thaws) StopPodSandbox(_ context.Context, id string) error {
	t.did = append(t.did, "stop "+id)
	return errors.New("enough")
}

func (*thaws) RequestRefresh(types.UID) {}

// What is frozen can't end.
func TestWhatIsToEndIsThawed(t *testing.T) {
	th := &thaws{}
	r := New(Config{Runtime: th, Observer: th, Allocations: noAllocations{}, Cgroups: th, Parallel: 1, Log: logr.Discard(), Objects: seen{&sandboxWorld{}}})
	r.Do(t.Context(), nil, nil, "u", pod.Action{Kind: pod.StopContainer, ID: "c"})
	r.Do(t.Context(), nil, nil, "u", pod.Action{Kind: pod.StopSandbox, ID: "s"})
	if want := []string{`thaw u "c"`, "stop c", `thaw u ""`, "stop s"}; !slices.Equal(th.did, want) {
		t.Errorf("%q, want %q", th.did, want)
	}
}

// What can't be in any directory by its UID is gone when the runtime has nothing of it.
func TestAPodWhoseUIDIsNoNameEnds(t *testing.T) {
	for _, uid := range []types.UID{"", "../x", types.UID(strings.Repeat("x", 300))} {
		w := &sandboxWorld{}
		r := w.runner()
		r.cfg.Cgroups, r.cfg.Logs, r.cfg.Records, r.cfg.Allocations = nameless{cgroupsOf{w}}, noLogs{}, noRecords{}, grants{}
		r.cfg.Volumes = cleaning{err: errors.New("no such name")}
		if done := r.Do(t.Context(), nil, nil, uid, pod.Action{Kind: pod.CleanPod}); done.Failure != nil {
			t.Errorf("%q: %s", uid, done.Failure.Message)
		}
	}
}

// stops are the sandboxes that were asked to stop. Their networks hang until they are let go.
type stops struct {
	Runtime
	Observer
	ids []string
	let chan struct{}
}

func (s *stops) StopPodSandbox(_ context.Context, id string) error {
	s.ids = append(s.ids, id)
	if strings.HasPrefix(id, "dead") {
		<-s.let
	}
	return nil
}

func (*stops) SandboxStopped(string) {}

// Dead sandboxes of pods that are to start again are stopped a few at a time, and keep neither others from being stopped nor anything from starting.
func TestDeadSandboxesAreStoppedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stops{let: make(chan struct{})}
		r := New(Config{Runtime: s, Observer: s, Allocations: noAllocations{}, Cgroups: cgroupsOf{}, Parallel: 1, Log: logr.Discard()})
		o := &pod.Observed{UID: "u", Sandboxes: []pod.Sandbox{
			{ID: "dead1", State: pod.SandboxNotReady}, {ID: "dead2", State: pod.SandboxNotReady}, {ID: "dead3", State: pod.SandboxNotReady},
			{ID: "host", State: pod.SandboxNotReady, HostNetwork: true}, {ID: "ready", State: pod.SandboxReady}}}
		stop := func(d *pod.Desired, id string) {
			go r.Do(t.Context(), d, o, "u", pod.Action{Kind: pod.StopSandbox, ID: id})
			synctest.Wait()
		}
		wanted := &pod.Desired{Pod: &v1.Pod{}}
		stop(wanted, "dead1")
		stop(wanted, "dead2")
		stop(wanted, "host")
		stop(wanted, "ready")
		stop(nil, "dead3") // its pod goes
		if want := []string{"dead1", "host", "ready", "dead3"}; !slices.Equal(s.ids, want) {
			t.Errorf("%q, want %q", s.ids, want)
		}
		release, err := r.gate.Acquire(t.Context(), prioritySandbox)
		if err != nil {
			t.Fatal(err)
		}
		release()
		close(s.let)
		synctest.Wait()
		if !slices.Contains(s.ids, "dead2") {
			t.Errorf("afterwards: %q", s.ids)
		}
	})
}
