package cluster_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// passage is a way to the API server that only the node's agent takes, and that can be cut.
type passage struct {
	t *testing.T
	// packets are the rules for what goes either way, which iptables has while it is cut.
	packets, cuts [][]string
	// gate has new connections wait until it is closed, as at a load balancer that has no server; nil lets them in.
	gate atomic.Pointer[chan struct{}]
}

// newPassage opens one for node1, and returns a kubeconfig that leads through it.
func newPassage(t *testing.T, p *plane.Plane) (way *passage, kubeconfig string) {
	t.Helper()
	way, kubeconfig, port := openPassage(t, p, node.Name, "127.0.0.1")
	for _, side := range []string{"--dport", "--sport"} {
		way.packets = append(way.packets, []string{"OUTPUT", "-o", "lo", "-p", "tcp", side, port})
	}
	return way, kubeconfig
}

// joinApart prepares a node in a network of its own, which has one link; all that goes over that takes the passage, and nothing goes elsewhere.
func joinApart(t *testing.T, p *plane.Plane, binary, name string, flags ...string) (*rig, *passage) {
	t.Helper()
	r := joinAs(t, p, binary, name, "")
	link, address := r.OwnNetwork()
	way, kubeconfig, _ := openPassage(t, p, name, address)
	way.packets = [][]string{{"INPUT", "-i", link}, {"OUTPUT", "-o", link}}
	r.AddFlags(append(flags, "--kubeconfig", kubeconfig)...)
	return r, way
}

// openPassage opens one at an address, and returns the port there, too.
func openPassage(t *testing.T, p *plane.Plane, name, address string) (way *passage, kubeconfig, port string) {
	t.Helper()
	server, err := url.Parse(p.Server())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	way = &passage{t: t}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			if gate := way.gate.Load(); gate != nil {
				select {
				case <-*gate:
				case <-t.Context().Done():
				}
			}
			to, err := net.Dial("tcp", server.Host)
			if err != nil {
				from.Close()
				continue
			}
			shut := sync.OnceFunc(func() { from.Close(); to.Close() })
			t.Cleanup(shut)
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				all.Go(func() {
					defer shut()
					_, _ = io.Copy(pair[0], pair[1]) // both ends find out
				})
			}
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	if _, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	text := string(read(t, p.Node(name)))
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text = strings.Replace(text, fmt.Sprintf("server: %q", p.Server()), fmt.Sprintf("server: %q, tls-server-name: localhost", "https://"+l.Addr().String()), 1)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.heal)
	return way, kubeconfig, port
}

// cut drops every packet either way: nobody is told.
func (w *passage) cut() { w.t.Helper(); w.block(w.packets, "DROP") }

// reset answers every packet to the API server, and leaves the answers alone.
func (w *passage) reset() {
	w.t.Helper()
	w.block(w.packets[:1], "REJECT", "--reject-with", "tcp-reset")
}

// block has what is sent go to a target of iptables.
func (w *passage) block(sent [][]string, target ...string) {
	w.t.Helper()
	for _, packets := range sent {
		rule := slices.Concat(packets, []string{"-j"}, target)
		if out, err := exec.Command("iptables", append([]string{"-w", "-I"}, rule...)...).CombinedOutput(); err != nil {
			w.t.Fatalf("iptables: %v: %s", err, out)
		}
		w.cuts = append(w.cuts, rule)
	}
}

func (w *passage) heal() {
	for _, rule := range w.cuts {
		if out, err := exec.Command("iptables", append([]string{"-w", "-D"}, rule...)...).CombinedOutput(); err != nil {
			w.t.Errorf("iptables %v: %v: %s", rule, err, out)
		}
	}
	w.cuts = nil
}

// partition: after a partition during which pods came, changed and went, the API server has exactly what there is, by as few calls
// as that takes.
func partition(t *testing.T, p *plane.Plane, binary string) {
	way, kubeconfig := newPassage(t, p)
	r := join(t, p, binary, "maxPods: 200\n", "--kubeconfig", kubeconfig)
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	r.partition(t, way)
	r.kubectl("delete", "pod", "--all", "--timeout=120s")
}

func (r *rig) partition(t *testing.T, way *passage) {
	// Of 110 pods these go, gracefully or by force, and are restarted; others come.
	const pods, deleted, forced, restarted, created = 110, 10, 10, 30, 20
	name := func(i int) string { return fmt.Sprintf("p%03d", i) }
	quick := spec("[sleep, 1h]", "hostNetwork: true,", "nodeName: "+node.Name+",")
	var manifests strings.Builder
	for i := range pods {
		manifests.WriteString(podNamed(name(i), quick))
	}
	seen := r.record()
	began := time.Now()
	r.apply(manifests.String())
	r.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=300s")
	t.Logf("%d pods are ready after %s", pods, time.Since(began).Round(time.Millisecond))

	way.cut()
	var crashing []string
	for i := range restarted {
		crashing = append(crashing, name(deleted+forced+i))
	}
	change := r.restartedHere(t, crashing...)
	var now, soon []string
	for i := range deleted + forced {
		if i < deleted {
			soon = append(soon, name(i))
		} else {
			now = append(now, name(i))
		}
	}
	r.kubectl(append([]string{"delete", "pod", "--wait=false"}, soon...)...)
	r.kubectl(append([]string{"delete", "pod", "--force", "--grace-period=0", "--wait=false"}, now...)...)
	manifests.Reset()
	for i := range created {
		manifests.WriteString(podNamed(name(pods+i), quick))
	}
	r.apply(manifests.String())
	r.is(v1.ConditionUnknown)
	r.Eventually("the control plane takes its pods for lost", func() error {
		for i := deleted + forced; i < pods; i++ {
			if c := condition(seen.last(name(i)), v1.PodReady); c.Status == v1.ConditionTrue {
				return fmt.Errorf("%s is ready", name(i))
			}
		}
		return nil
	})
	r.Eventually("they run again here", change)

	_, from := r.calls(0)
	healed := time.Now()
	way.heal()
	r.Eventually("the API server has all there is", func() error {
		for i := range pods + created { // first what costs the agent nothing to tell
			there := seen.last(name(i))
			if runs := i >= deleted+forced; there == nil || runs && condition(there, v1.PodReady).Status != v1.ConditionTrue || !runs && !seen.gone(there) {
				return fmt.Errorf("%s isn't told", name(i))
			}
		}
		here := map[string]local.PodView{}
		for _, v := range r.snapshot().Pods {
			here[v.Pod.Name] = v
		}
		var errs []error
		for i := range pods + created {
			there, runs := seen.last(name(i)), i >= deleted+forced
			if v, is := here[name(i)]; is != runs || runs && !sameStatus(&v.Pod.Status, &there.Status) || !runs && !seen.gone(there) {
				errs = append(errs, fmt.Errorf("%s: %+v", name(i), there.Status))
			}
		}
		if len(errs) > 0 {
			return fmt.Errorf("%d differ, such as %w", len(errs), errs[0])
		}
		return nil
	})
	exact := time.Now()
	r.Eventually("some renewals of the lease later", func() error { // what else it has to say it says meanwhile
		if count, _ := r.calls(from); count["update leases.coordination.k8s.io"] < 4 {
			return fmt.Errorf("%v", count)
		}
		return nil
	})
	reached, last, patches, removed := time.Time{}, time.Time{}, map[string]int{}, map[string]int{}
	for _, c := range r.p.Calls()[from:] {
		if c.Verb == "list" && c.Resource == "pods" { // on a new connection
			reached = c.At
		}
		switch c.Verb + " " + c.Resource {
		case "patch pods/status":
			patches[c.Name]++
			if i, _ := strconv.Atoi(strings.TrimPrefix(c.Name, "p")); i >= deleted+forced && i < pods && c.Answered.After(last) {
				last = c.Answered
			}
		case "delete pods":
			removed[c.Name]++
		}
	}
	t.Logf("after the partition: reached after %s; then, within %s, all %d statuses of pods that were there are told; it is exact after %s, when %d pods have started and %d have gone",
		reached.Sub(healed).Round(time.Millisecond), last.Sub(reached).Round(time.Millisecond), pods-deleted-forced, exact.Sub(reached).Round(time.Millisecond), created, deleted)
	t.Logf("patches: %v", countOf(patches))
	for i := range pods + created {
		n, want := patches[name(i)], 1
		switch {
		case i < deleted:
			want = 3 // that it is ready still, which the control plane has denied, that it isn't any more, and its end
			if exact.Sub(reached) > 10*time.Second {
				want++ // and that its containers have ended, where the rest takes long
			}
		case i < deleted+forced:
			want = 0
		case i < deleted+forced+restarted:
			want = 2 // one may be under way since before, and not know yet what the control plane has written
		case i >= pods:
			want = 3 // it is seen, it has an address where it takes long from there, and it runs
			if exact.Sub(reached) > 10*time.Second {
				want++ // and what it waits for is told, where it waits for long
			}
		}
		denied := seen.denied(name(i))
		if i < pods {
			denied-- // by the partition
		}
		want += max(denied, 0) // the control plane, or the agent's lease, was slow: the node was taken for lost once more
		if n > want || i >= deleted+forced && n == 0 {
			t.Errorf("%d patches of %s, want %d", n, name(i), want)
		}
		if n := removed[name(i)]; (n > 0) != (i < deleted) || n > 1 {
			t.Errorf("%d removals of %s", n, name(i))
		}
	}
}

// restartedHere ends the containers of pods, and returns what fails until they run again.
func (r *rig) restartedHere(t *testing.T, names ...string) func() error {
	t.Helper()
	ended := map[string]bool{}
	for _, v := range r.snapshot().Pods {
		if !slices.Contains(names, v.Pod.Name) {
			continue
		}
		_, id, _ := strings.Cut(v.Pod.Status.ContainerStatuses[0].ContainerID, "://")
		text, err := r.CgroupFile(string(v.Pod.UID), id, "cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended[v.Pod.Name] = true
	}
	if len(ended) != len(names) {
		t.Fatalf("ended %v", slices.Collect(maps.Keys(ended)))
	}
	return func() error {
		for _, v := range r.snapshot().Pods {
			if s := v.Pod.Status; ended[v.Pod.Name] && (s.Phase != v1.PodRunning || s.ContainerStatuses[0].RestartCount != 1 || s.ContainerStatuses[0].State.Running == nil) {
				return fmt.Errorf("%s: %+v", v.Pod.Name, s.ContainerStatuses)
			}
		}
		return nil
	}
}

// sameStatus compares what matters to others of a status here and at the API server.
func sameStatus(here, there *v1.PodStatus) bool {
	if here.Phase != there.Phase || len(here.ContainerStatuses) != 1 || len(there.ContainerStatuses) != 1 {
		return false
	}
	a, b := here.ContainerStatuses[0], there.ContainerStatuses[0]
	is, was := condition(&v1.Pod{Status: *here}, v1.PodReady), condition(&v1.Pod{Status: *there}, v1.PodReady)
	return a.ContainerID == b.ContainerID && a.RestartCount == b.RestartCount && a.Ready == b.Ready && is.Status == was.Status && is.Status == v1.ConditionTrue
}

// countOf says how many have each number.
func countOf(numbers map[string]int) map[int]int {
	count := map[int]int{}
	for _, n := range numbers {
		count[n]++
	}
	return count
}
