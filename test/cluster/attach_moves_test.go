package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestAttachMoves: attached volumes move from pod to pod.
func TestAttachMoves(t *testing.T) {
	binary := builtOnce(t)
	rounds := attachRounds(t)
	p := plane.Start(t, program)
	t.Run("between two agents", func(t *testing.T) { moveBetweenAgents(t, p, binary, 4*rounds) })
	t.Run("within a StatefulSet", func(t *testing.T) { rollStatefulSet(t, p, binary, 2*rounds) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
	// Not checked: the kubelet asks for new pods, and is refused until the authorizer has them on its node.
	t.Run("from attached to staged", func(t *testing.T) { compareStages(t, p) })
}

// moveBetweenAgents replaces a pod so many times by one on another node, which waits until the volume is detached. The
// nodes are two agents with root directories and drivers of their own, whose volumes are the same directories.
func moveBetweenAgents(t *testing.T, p *plane.Plane, binary string, moves int) {
	first := joinAttached(t, p, binary)
	dir, volumes := t.TempDir(), filepath.Join(first.driver.Dir, "state/volumes")
	if err := errors.Join(os.MkdirAll(volumes, 0o755), os.Mkdir(filepath.Join(dir, "state"), 0o755),
		os.Symlink(volumes, filepath.Join(dir, "state/volumes"))); err != nil {
		t.Fatal(err)
	}
	second := joinAttachedAs(t, p, binary, "node2", driver.Options{Dir: dir})
	second.handles = first.handles
	first.addVolumes("data")
	rigs := []*attachRig{first, second}
	run := func(i int) (name string) {
		t.Helper()
		name = fmt.Sprint("pod-", i)
		first.addPodTo(rigs[i%2].name, name, "data")
		return name
	}
	name := run(0)
	first.areReady(name)
	for i := range moves {
		next := run(i + 1)
		rigs[(i+1)%2].nodes.await(t, next+" waits for the volume", func(map[string]*v1.Node) error {
			if inUse, attached := rigs[(i+1)%2].listed(); len(inUse) != 1 || len(attached) != 0 {
				return fmt.Errorf("in use %q, attached %q", inUse, attached)
			}
			return nil
		})
		first.removePod(name, false)
		first.areReady(next)
		name = next
	}
	first.removePod(name, false)
	first.areGone(name)
	for _, r := range rigs {
		r.settles()
		r.takeCalls()
	}
	checkMoves(t, rigs, moves)
	first.clearVolumes()
}

// checkMoves checks that the volume was never staged on two nodes, and how long each move took.
func checkMoves(t *testing.T, rigs []*attachRig, moves int) {
	type call struct {
		driver.Call
		by *attachRig
	}
	var calls []call
	for _, r := range rigs {
		for _, c := range slices.Concat(r.callsOf("NodeStageVolume"), r.callsOf("NodeUnstageVolume")) {
			calls = append(calls, call{c, r})
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return a.Began.Compare(b.Began) })
	if len(calls) != 2*(moves+1) {
		t.Errorf("%d calls for %d moves", len(calls), moves)
	}
	audited := rigs[0].audited()
	var took []time.Duration
	for i, c := range calls {
		want := []string{"NodeStageVolume", "NodeUnstageVolume"}[i%2]
		if c.Method != want || c.Code != "OK" || c.by != rigs[i/2%2] || i > 0 && c.Began.Before(calls[i-1].Ended) {
			t.Errorf("call %d: %s on %s at %s: %s", i, c.Method, c.by.name, c.Began.Format("05.000000"), c.Code)
		}
		if i == 0 || want != "NodeStageVolume" {
			continue
		}
		before := calls[i-1]
		name := c.by.unique("data")
		inUse, _ := before.by.history(audited)
		_, attached := c.by.history(audited)
		next := func(all []lists, has bool) int {
			return slices.IndexFunc(all, func(l lists) bool {
				return l.at.After(before.Ended) && !l.failed && l.has(name) == has
			})
		}
		released, reported := next(inUse, false), next(attached, true)
		if released < 0 || reported < 0 {
			t.Fatalf("call %d: the lists %v and %v lack the volume's move", i, inUse, attached)
		}
		controllers := attached[reported].at.Sub(inUse[released].answered)
		ours := c.Began.Sub(before.Ended) - controllers
		if took = append(took, ours); controllers < 0 {
			t.Errorf("move %d took the agents %s and the controllers %s", i/2, ours, controllers)
		}
	}
	if ours := slices.Min(took); ours > time.Second { // the shortest one: other programs may delay a move
		t.Errorf("each move took the agents %s or more", ours)
	}
	t.Logf("from NodeUnstageVolume's end to NodeStageVolume, without the controllers' time: %v", took)
}

// rollStatefulSet replaces all pods of a StatefulSet so many times. Their volumes may come back while they are being
// unstaged (kubernetes/kubernetes#121357) or detached (kubernetes/kubernetes#72181).
func rollStatefulSet(t *testing.T, p *plane.Plane, binary string, rolls int) {
	const replicas = 2
	r := joinAttached(t, p, binary)
	r.addVolumes("data-db-0", "data-db-1")
	r.apply(workload("StatefulSet", "db", fmt.Sprintf(`replicas: %d, serviceName: db, volumeClaimTemplates: [{metadata: {name: data},
  spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}}],`, replicas),
		spec("[serve], volumeMounts: [{name: data, mountPath: /data}]", noToken)))
	for i := range rolls + 1 {
		if i > 0 {
			r.kubectl("patch", "statefulset", "db", "-p",
				fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"roll": "%d"}}}}}`, i))
		}
		r.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
		for name, pod := range r.pods.now() {
			for _, c := range pod.Status.ContainerStatuses {
				if c.RestartCount > 0 {
					t.Errorf("roll %d: a container of %s was restarted", i, name)
				}
			}
		}
	}
	r.settles("data-db-0", "data-db-1")
	r.kubectl("scale", "statefulset/db", "--replicas=0")
	r.areGone("db-0", "db-1")
	r.settles()
	r.takeCalls()
	staged := map[string]string{}
	for _, c := range r.callsOf("NodeStageVolume") {
		if was := staged[c.Volume]; was != "" && was != request(t, c) {
			t.Errorf("staged with %s\nafter %s", request(t, c), was)
		}
		staged[c.Volume] = request(t, c)
	}
	stages, publishes := len(r.callsOf("NodeStageVolume")), len(r.callsOf("NodePublishVolume"))
	if len(staged) != replicas || publishes != replicas*(rolls+1) || stages > publishes {
		t.Errorf("%d volumes staged by %d calls, and published by %d", len(staged), stages, publishes)
	}
	t.Logf("rolled %d times: %d calls to stage, %d to publish", rolls, stages, publishes)
	r.kubectl("delete", "statefulset", "db", "--timeout=60s")
	r.clearVolumes()
}

// compareStages measures how long NodeStageVolume takes to be called once a controller has reported a volume attached to
// a node that has reported it in use, for deckhand and for the kubelet.
func compareStages(t *testing.T, p *plane.Plane) {
	const count, atOnce = 20, 4
	// most is the limit of deckhand's median, if the kubelet's isn't higher by far: then the machine is busy.
	const most = 150 * time.Millisecond
	binary, err := node.BuildFast(t.TempDir()) // the kubelet has no race detector either
	if err != nil {
		t.Fatal(err)
	}
	r := newAttachRig(t, join(t, p, binary, ""), driver.Options{})
	kubelet := r.forBoth(r.endpoint)
	var claims []string
	for i := range count {
		claims = append(claims, fmt.Sprint("data-", i))
	}
	r.addVolumes(claims...)
	median := func(agent string, start func()) time.Duration {
		start()
		r.joined()
		from, calls := len(p.Audited()), len(r.seen)
		for some := range slices.Chunk(claims, atOnce) {
			for _, claim := range some {
				r.addPod("pod-of-"+claim, claim)
			}
			for _, claim := range some {
				r.areReady("pod-of-" + claim)
			}
		}
		inUse, attached := r.history(p.Audited()[from:])
		for _, claim := range claims {
			r.removePod("pod-of-"+claim, false)
		}
		for _, claim := range claims {
			r.areGone("pod-of-" + claim)
		}
		r.settles()
		r.Stop()
		r.takeCalls()
		var took []time.Duration
		for _, claim := range claims {
			has := func(l lists) bool { return !l.failed && l.has(r.unique(claim)) }
			reported, listed := slices.IndexFunc(inUse, has), slices.IndexFunc(attached, has)
			staged := slices.IndexFunc(r.seen[calls:], func(c driver.Call) bool {
				return c.Method == "NodeStageVolume" && c.Volume == r.handles[claim]
			})
			if reported < 0 || listed < 0 || staged < 0 {
				t.Fatalf("under %s, volume %s: entries %d and %d of the lists, call %d", agent, claim, reported, listed, staged)
			}
			began := r.seen[calls+staged].Began
			took = append(took, min(began.Sub(inUse[reported].at), began.Sub(attached[listed].at)))
		}
		slices.Sort(took)
		t.Logf("from attached to NodeStageVolume under %s: p50 %s, p90 %s, at most %s", agent, took[count/2],
			took[count*9/10], took[count-1])
		return took[count/2]
	}
	ours := median("deckhand", r.Start)
	if limit := max(most, 2*median("the kubelet", kubelet)); ours > limit {
		t.Errorf("under deckhand it takes %s, want at most %s", ours, limit)
	}
	r.clearVolumes()
}
