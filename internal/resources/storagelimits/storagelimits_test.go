package storagelimits_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	state "github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

func initContainer(text string, restarts *v1.ContainerRestartPolicy) func(*v1.Pod) {
	c := container(text)
	c.RestartPolicy = restarts
	return func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{c} }
}

func debugged(p *v1.Pod) {
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		pod    storagelimits.Pod
		change func(*v1.Pod)
		dirs   map[string]int64
		layers map[string]int64
		runs   string // the container that does; all have been started
		want   string // "signal: message"; empty for none
	}{
		"a volume over its limit": {
			pod: pod("u", []string{"a=1Mi"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": mib + 1},
			want: `emptydirfs.limit: Usage of EmptyDir volume "a" exceeds the limit "1Mi". `,
		},
		"a volume at its limit":            {pod: pod("u", []string{"a=1Mi"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": mib}},
		"a volume in memory":               {pod: pod("u", []string{"a=1Mi,Memory", "b=1Mi,HugePages"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": 5 * mib, "/pods/u/b": 5 * mib}},
		"a limit of nothing is none":       {pod: pod("u", []string{"a=0", "b=1Mi"}, []string{"c=0"}), dirs: map[string]int64{"/pods/u/a": mib}, layers: map[string]int64{"u c": mib}},
		"a volume without a limit, alone":  {pod: pod("u", []string{"a", "b=1Mi"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": 99 * mib}},
		"one volume doesn't use another's": {pod: pod("u", []string{"a=10Mi", "b=1Mi"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": 9 * mib}},
		"a container's writable layer": {
			pod: pod("u", nil, []string{"c=5Mi", "d=9Mi"}), layers: map[string]int64{"u c": 6 * mib},
			want: `ephemeralcontainerfs.limit: Container c exceeded its local ephemeral storage limit "5Mi". `,
		},
		"a container's layer and logs": {
			pod: pod("u", nil, []string{"c=5Mi", "d=9Mi"}), layers: map[string]int64{"u c": 3 * mib}, dirs: map[string]int64{"/logs/ns_u_u/c": 3 * mib},
			want: `ephemeralcontainerfs.limit: Container c exceeded its local ephemeral storage limit "5Mi". `,
		},
		"another's logs don't count":         {pod: pod("u", nil, []string{"c=5Mi", "d=9Mi"}), layers: map[string]int64{"u c": 3 * mib}, dirs: map[string]int64{"/logs/ns_u_u/d": 3 * mib}},
		"volumes don't count for containers": {pod: pod("u", []string{"a"}, []string{"c=5Mi", "d=9Mi"}), dirs: map[string]int64{"/pods/u/a": 13 * mib}},
		"all together are over the sum": {
			pod:    pod("u", []string{"a", "m=1Gi,Memory"}, []string{"c=5Mi", "d=5Mi"}),
			layers: map[string]int64{"u c": 3 * mib}, dirs: map[string]int64{"/pods/u/a": 4 * mib, "/logs/ns_u_u/d": 4 * mib, "/pods/u/m": 99 * mib},
			want: "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		},
		"an init container that runs": {
			pod: pod("u", nil, []string{"c=5Mi"}), change: initContainer("i=2Mi", nil), runs: "i",
			layers: map[string]int64{"u i": 3 * mib},
			want:   `ephemeralcontainerfs.limit: Container i exceeded its local ephemeral storage limit "2Mi". `,
		},
		"an init container that exceeded its limit and ended": {
			pod: pod("u", nil, []string{"c=5Mi"}), change: initContainer("i=2Mi", nil), runs: "c",
			layers: map[string]int64{"u i": 3 * mib},
		},
		"an init container that ended leaves its share to the main ones": {
			pod: pod("u", nil, []string{"c=10Mi"}), change: initContainer("i=20Mi", nil), runs: "c",
			layers: map[string]int64{"u i": 18 * mib, "u c": 5 * mib},
		},
		"its logs do, too": {
			pod: pod("u", nil, []string{"c=10Mi"}), change: initContainer("i=20Mi", nil), runs: "c",
			layers: map[string]int64{"u c": 5 * mib}, dirs: map[string]int64{"/logs/ns_u_u/i": 18 * mib},
		},
		"a sidecar that waits to be restarted": {
			pod: pod("u", nil, []string{"c=5Mi"}), change: initContainer("i=2Mi", new(v1.ContainerRestartPolicyAlways)), runs: "c",
			layers: map[string]int64{"u i": 3 * mib},
			want:   `ephemeralcontainerfs.limit: Container i exceeded its local ephemeral storage limit "2Mi". `,
		},
		"an ephemeral container that runs": {
			pod: pod("u", nil, []string{"c=2Mi"}), change: debugged, runs: "debug", layers: map[string]int64{"u debug": 3 * mib},
			want: "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
		},
		"an ephemeral container that ended": {
			pod: pod("u", nil, []string{"c=2Mi"}), change: debugged, runs: "c", layers: map[string]int64{"u debug": 3 * mib, "u c": mib},
		},
		"a critical pod stays": {
			pod: pod("u", []string{"a=1Mi"}, []string{"c"}), dirs: map[string]int64{"/pods/u/a": 2 * mib},
			change: func(p *v1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.pod.Pod)
			}
			c.pod.Observed = &state.Observed{}
			for name := range state.ContainerNames(c.pod.Pod) {
				instance := state.Container{Name: name, State: state.ContainerExited}
				if name == c.runs {
					instance.State = state.ContainerRunning
				}
				c.pod.Observed.Containers = append(c.pod.Observed.Containers, instance)
			}
			within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
				n.set(func() {
					n.pods = []storagelimits.Pod{c.pod}
					for dir, bytes := range c.dirs {
						n.dirs[dir] = bytes
					}
					for key, bytes := range c.layers {
						n.layers[key] = bytes
					}
				})
				j.Changed()
				after(15 * time.Second)
				got := ""
				if e := j.Termination("u"); e != nil {
					got = strings.Join(n.signals, " and ") + ": " + e.Message
					if e.Reason != "Evicted" || e.Disruption || e.Grace == nil || *e.Grace != time.Second || time.Since(e.At) > 15*time.Second {
						t.Errorf("the verdict is %+v", e)
					}
				}
				if got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if woken := len(n.woken) == 1 && n.woken[0] == "u"; woken != (c.want != "") {
					t.Errorf("woken: %v", n.woken)
				}
			})
		})
	}
}

func TestWithoutLimitsNothingIsMeasuredAndNothingTicks(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() { n.pods = []storagelimits.Pod{pod("u", []string{"a", "m=1Mi,Memory"}, []string{"c"})} })
		j.Changed()
		after(24 * time.Hour)
		n.set(func() {
			if len(n.measured) > 0 || n.listed > 2 {
				t.Errorf("looked at the pods %d times, and measured %v", n.listed, n.measured)
			}
		})
	})
}

func TestAVerdictIsFinalUntilThePodIsForgotten(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.pods = []storagelimits.Pod{pod("u", []string{"a=1Mi"}, []string{"c"})}
			n.dirs["/pods/u/a"] = 2 * mib
		})
		j.Changed()
		after(15 * time.Second)
		first := j.Termination("u")
		if first == nil {
			t.Fatal("no verdict")
		}
		looks := n.looks()
		n.set(func() { n.dirs["/pods/u/a"] = 0 })
		j.Changed()
		after(time.Hour)
		n.set(func() { n.pods = nil })
		j.Changed()
		after(time.Hour)
		if got := j.Termination("u"); got != first {
			t.Errorf("the verdict became %+v", got)
		}
		if n.looks() != looks {
			t.Error("a pod that has to end is measured")
		}
		j.Forget("u")
		if got := j.Termination("u"); got != nil {
			t.Errorf("a forgotten pod has the verdict %+v", got)
		}
	})
}

func TestAQuietPodIsMeasuredSeldomAndABusyOneOften(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.pods = []storagelimits.Pod{pod("quiet", []string{"a=10Mi"}, nil), pod("near", []string{"a=10Mi"}, nil)}
			n.dirs["/pods/quiet/a"], n.dirs["/pods/near/a"] = mib, 9*mib
		})
		j.Changed()
		after(10 * time.Minute)
		count := func(dir string) (looks int) {
			n.set(func() {
				for _, look := range n.measured {
					if strings.HasSuffix(look, dir) {
						looks++
					}
				}
			})
			return looks
		}
		if quiet, near := count("/pods/quiet/a"), count("/pods/near/a"); quiet > 15 || near < 50 {
			t.Errorf("the quiet pod was measured %d times, the other %d times in 10 minutes", quiet, near)
		}
		// One that begins to write is soon seen to.
		n.set(func() { n.dirs["/pods/quiet/a"] = 11 * mib })
		after(70 * time.Second)
		if j.Termination("quiet") == nil {
			t.Error("no verdict")
		}
	})
}

func TestWhatTakesLongIsDoneSeldom(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.takes = 30 * time.Second
			n.pods = []storagelimits.Pod{pod("u", []string{"a=10Mi"}, nil)}
			n.dirs["/pods/u/a"] = 6 * mib
		})
		j.Changed()
		after(time.Hour)
		if looks := n.looks(); looks < 8 || looks > 12 {
			t.Errorf("measured %d times in an hour: %v", looks, n.measured)
		}
	})
}

func TestOnePodDoesntHoldUpAnother(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.takes = 10 * time.Hour
			n.pods = []storagelimits.Pod{pod("large", []string{"a=1Mi"}, nil)}
		})
		j.Changed()
		after(time.Minute)
		n.set(func() {
			n.takes = 0
			n.pods = append(n.pods, pod("small", []string{"a=1Mi"}, nil))
			n.dirs["/pods/small/a"] = 2 * mib
		})
		j.Changed()
		after(15 * time.Second)
		if j.Termination("small") == nil {
			t.Error("no verdict for the small one")
		}
	})
}

func TestAPodThatGoesWhileItIsMeasuredGetsNoVerdict(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.takes = time.Minute
			n.pods = []storagelimits.Pod{pod("u", []string{"a=1Mi"}, nil)}
			n.dirs["/pods/u/a"] = 2 * mib
		})
		j.Changed()
		after(20 * time.Second)
		n.set(func() { n.pods = nil })
		j.Forget("u")
		after(time.Hour)
		if e := j.Termination("u"); e != nil || len(n.woken) > 0 {
			t.Errorf("got %+v", e)
		}
	})
}

func TestWhatIsKnownIsHeldAgainstTheLimitThoughSomeIsnt(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		n.set(func() {
			n.failing = errors.New("the runtime is away")
			n.pods = []storagelimits.Pod{pod("u", []string{"a"}, []string{"c=1Mi"})}
			n.dirs["/pods/u/a"] = 2 * mib
		})
		j.Changed()
		after(15 * time.Second)
		if j.Termination("u") == nil {
			t.Error("no verdict")
		}
	})
}

// What pods keep is told once they were measured, until they are gone or have a verdict.
func TestWhatPodsKeepIsReported(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		told := func(when string, want ...storagelimits.Use) {
			t.Helper()
			if got := j.Uses(); !slices.Equal(got, want) {
				t.Errorf("%s: got %+v, want %+v", when, got, want)
			}
		}
		n.set(func() {
			n.pods = []storagelimits.Pod{pod("u", []string{"a=1Mi"}, []string{"c=2Mi"}), pod("free", []string{"a"}, []string{"c"})}
			n.dirs["/pods/u/a"], n.layers["u c"] = 1000, 500
		})
		j.Changed()
		after(time.Second)
		told("before it was measured")
		after(15 * time.Second)
		use := storagelimits.Use{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "u"}, UID: "u", Used: usage.Usage{Bytes: 1500, Inodes: 2}}
		told("measured", use)
		n.set(func() { n.dirs["/pods/u/a"] = 2500 })
		after(2 * time.Minute)
		use.Used.Bytes = 3000
		told("it keeps more", use)
		n.set(func() { n.dirs["/pods/u/a"] = 2 * mib })
		after(2 * time.Minute)
		told("it has to end")
		j.Forget("u")
		n.set(func() { n.dirs["/pods/u/a"] = 1000 })
		j.Changed()
		after(15 * time.Second)
		use.Used.Bytes = 1500
		told("another of its name", use)
		n.set(func() { n.pods = nil })
		j.Changed()
		after(2 * time.Second)
		told("gone")
	})
}

func TestQuotasAreAskedForPodsWithUsersOfTheirOwnOnly(t *testing.T) {
	within(t, func(t *testing.T, n *node, j *storagelimits.Manager) {
		own, host := pod("own", []string{"a=1Mi"}, nil), pod("host", []string{"a=1Mi"}, nil)
		no := false
		own.Pod.Spec.HostUsers = &no
		n.set(func() { n.pods = []storagelimits.Pod{own, host} })
		j.Changed()
		after(5 * time.Minute)
		n.set(func() {
			if n.assigned["/pods/own/a"] != 1 || n.assigned["/pods/host/a"] != 0 {
				t.Errorf("assigned: %v", n.assigned)
			}
			n.pods = nil
		})
		j.Changed()
		after(time.Minute)
		n.set(func() {
			if n.assigned["/pods/own/a"] != 0 {
				t.Error("the directory of a pod that is gone isn't forgotten")
			}
		})
	})
}
