package agent_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

const (
	plainSpec = "  terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: \"IMAGE\"}]\n"
	fullSpec  = "  terminationGracePeriodSeconds: 1\n  initContainers:\n  - {name: setup, image: \"IMAGE\", command: [exit, \"0\"]}\n" + runningSpec
	quietSpec = "  terminationGracePeriodSeconds: 1\n  initContainers:\n" + runningSpec
	// runningSpec is the part of fullSpec, and all of quietSpec, in which nothing ends by itself.
	runningSpec = "  - {name: side, image: \"IMAGE\", restartPolicy: Always}\n  containers:\n  - {name: main, image: \"IMAGE\"}\n  - {name: second, image: \"IMAGE\"}\n"
	onceSpec    = "  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  containers: [{name: once, image: \"IMAGE\", command: [exit, \"0\"]}]\n"
)

// actionCalls are the calls that actions consist of.
var actionCalls = []string{"RunPodSandbox", "PodSandboxStatus", "ImageStatus", "CreateContainer", "StartContainer", "ContainerStatus",
	"StopContainer", "StopPodSandbox", "RemovePodSandbox", "ListPodSandbox", "ListContainers"}

// TestEachCallFailsOnce lets each call fail once, or lose its answer once, while
// events flow and while they don't, on a pod's way up and on its way down.
func TestEachCallFailsOnce(t *testing.T) {
	faults := map[string]func(r *rig, call string){
		"fails":      func(r *rig, call string) { r.FailNext(call, 1, status.Error(codes.Unknown, "by the test")) },
		"is-lost":    func(r *rig, call string) { r.LoseNext(call, 1) },
		"is-unheard": func(r *rig, call string) { r.DropEvents(true); r.LoseNext(call, 1) },
	}
	for _, call := range actionCalls {
		for name, inject := range faults {
			spec := fullSpec
			if name == "is-unheard" {
				spec = quietSpec // nobody would hear of the end of one that ends by itself, for minutes
			}
			t.Run(call+"-"+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.up()
				r.want("first", plainSpec)
				r.await("before the fault", r.running("first/main"))
				inject(r, call)
				r.want("full", spec)
				r.await("on the way up", r.running("first/main", "full/side", "full/main", "full/second"))
				r.DropEvents(false)
				inject(r, call)
				r.unwant("full")
				r.await("on the way down", r.nothing("full"))
				r.await("the neighbour", r.running("first/main"))
				if n := r.newest("first/main"); n.Metadata.Attempt != 0 {
					t.Errorf("the neighbour was restarted: %s", r.describe())
				}
			})
		}
	}
}

// TestAgentEndsAtEachCall ends the agent while it waits for each call, and starts
// it anew: it carries on without a restart.
func TestAgentEndsAtEachCall(t *testing.T) {
	for _, call := range actionCalls {
		for _, lost := range []bool{false, true} {
			name := call + "-not-done"
			if lost {
				name = call + "-done"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.up()
				for step, change := range []func(){func() { r.want("full", fullSpec) }, func() { r.unwant("full") }} {
					n := r.Calls(call)
					release := func() {}
					if lost {
						r.LoseNext(call, 1)
					} else {
						release = r.Hang(call)
					}
					change()
					// Not every call is needed in both directions.
					r.await("the call", func() string {
						if r.Calls(call) > n || step == 0 && r.running("full/side", "full/main", "full/second")() == "" || step == 1 && r.nothing("")() == "" {
							return ""
						}
						return "it doesn't come"
					})
					r.stop()
					release()
					r.up()
					if step == 0 {
						r.await("after the restart", r.running("full/side", "full/main", "full/second"))
						if a := r.newest("full/main").Metadata.Attempt; a != 0 {
							t.Errorf("restarted: %s", r.describe())
						}
					} else {
						r.await("after the restart", r.nothing(""))
					}
				}
			})
		}
	}
}

// TestHangingRuntimeDoesNotKeepTheAgent: it stops within seconds though no call comes back.
func TestHangingRuntimeDoesNotKeepTheAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.want("a", plainSpec)
	r.await("up", r.running("a/main"))
	for _, call := range actionCalls {
		defer r.Hang(call)()
	}
	r.want("b", plainSpec)
	r.unwant("a")
	n := r.Calls("RunPodSandbox")
	r.await("the calls", func() string {
		if r.Calls("StopContainer") == 0 || r.Calls("RunPodSandbox") < n {
			return "they don't come"
		}
		return ""
	})
	r.stop()
}

// TestRestartsAreCountedOnFromLogs: also when the runtime lost the containers and
// the agent was ended after it had made the new sandbox.
func TestRestartsAreCountedOnFromLogs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.want("a", plainSpec)
	r.await("up", r.running("a/main"))
	if err := r.Exit(r.newest("a/main").Id, 1, ""); err != nil {
		t.Fatal(err)
	}
	r.await("restarted", func() string {
		if n := r.newest("a/main"); n.Metadata.Attempt != 1 {
			return "attempt is still 0"
		}
		return r.running("a/main")()
	})
	r.stop()
	r.forgetAll(t)
	release := r.Hang("CreateContainer")
	n := r.Calls("CreateContainer")
	r.up()
	r.await("the container is about to be made", func() string {
		if r.Calls("CreateContainer") == n {
			return "it isn't"
		}
		return ""
	})
	r.stop()
	release()
	r.up()
	r.await("up again", r.running("a/main"))
	if a := r.newest("a/main").Metadata.Attempt; a != 2 {
		t.Errorf("the instance after #1 is #%d", a)
	}
}

// pastLists is longer than the agent lists everything after its start: from then
// on it does so every 5 minutes.
const pastLists = 2500 * time.Millisecond

// TestVanishedAndUnreported: what is removed behind the agent's back, without an
// event, is found out by the first effect that misses it.
func TestVanishedAndUnreported(t *testing.T) {
	t.Run("container", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.up()
		r.want("a", plainSpec)
		r.await("up", r.running("a/main"))
		time.Sleep(pastLists)
		r.DropEvents(true)
		if _, err := r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: r.newest("a/main").Id}); err != nil {
			t.Fatal(err)
		}
		r.unwant("a")
		r.await("gone", r.nothing(""))
	})
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.up()
		r.want("a", plainSpec)
		r.await("up", r.running("a/main"))
		time.Sleep(pastLists)
		release := r.Hang("ImageStatus")
		n := r.Calls("ImageStatus")
		if err := r.Exit(r.newest("a/main").Id, 1, ""); err != nil {
			t.Fatal(err)
		}
		if err := r.AwaitCalls(t.Context(), "ImageStatus", n+1); err != nil {
			t.Fatal(err)
		}
		r.DropEvents(true)
		r.forgetAll(t)
		release()
		r.await("up again", r.running("a/main"))
	})
}

// TestStartsUnderWayAreFinished: a container whose start the runtime is asked to
// give up would end at once and count as restarted.
func TestStartsUnderWayAreFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	release := r.Hang("StartContainer")
	defer release()
	r.want("a", plainSpec)
	if err := r.AwaitCalls(t.Context(), "StartContainer", 1); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, release)
	r.stop()
	if problem := r.running("a/main")(); problem != "" {
		t.Error(problem)
	}
}

// TestFinishedPodStaysFinished through restarts of agent and machine.
func TestFinishedPodStaysFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up()
	r.want("job", onceSpec)
	notReady := func() string {
		for _, sb := range r.Sandboxes() {
			if sb.State == 0 {
				return "its sandbox is up"
			}
		}
		if n := r.newest("job/once"); n == nil || n.FinishedAt == 0 {
			return "it hasn't run"
		}
		return ""
	}
	r.await("finished", notReady)
	r.restart()
	if err := r.Reboot(); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.want("other", plainSpec)
	r.await("the other", r.running("other/main"))
	if len(r.Containers()) != 2 {
		t.Errorf("the finished pod ran again:\n%s", r.describe())
	}
}

// TestChaos throws everything at the agent at random, then lets it come to rest.
func TestChaos(t *testing.T) {
	for seed := range uint64(8) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			chaos(t, rand.New(rand.NewPCG(seed, 7)))
		})
	}
}

func chaos(t *testing.T, rnd *rand.Rand) {
	r := newRig(t)
	r.Behave("setup", memcri.Behaviour{Exits: true, ExitAfter: 20 * time.Millisecond})
	r.up()
	wanted := map[string]string{}
	specs := []string{plainSpec, fullSpec, onceSpec}
	names := []string{"a", "b", "c", "d"}
	for range 60 {
		switch name := names[rnd.IntN(len(names))]; rnd.IntN(10) {
		case 0, 1, 2:
			wanted[name] = specs[rnd.IntN(len(specs))]
			r.want(name, wanted[name])
		case 3:
			if wanted[name] != "" {
				r.unwant(name)
				delete(wanted, name)
			}
		case 4:
			r.restart()
		case 5:
			if err := r.CrashAndRestart(); err != nil {
				t.Fatal(err)
			}
		case 6:
			r.LoseNext(actionCalls[rnd.IntN(len(actionCalls))], 1)
		case 7:
			r.FailNext(actionCalls[rnd.IntN(len(actionCalls))], 1, status.Error(codes.Unknown, "by chance"))
		case 8:
			if all := r.Sandboxes(); len(all) > 0 {
				_ = r.KillSandbox(all[rnd.IntN(len(all))].Id) // it may be gone by now
			}
		case 9:
			if rnd.IntN(3) == 0 {
				if err := r.Reboot(); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond) // chance decides how far things get
	}
	var want []string
	for name, spec := range wanted {
		switch spec {
		case plainSpec:
			want = append(want, name+"/main")
		case fullSpec:
			want = append(want, name+"/side", name+"/main", name+"/second")
		}
	}
	for _, call := range actionCalls {
		r.FailNext(call, 0, nil)
		r.LoseNext(call, 0)
	}
	r.await("in the end", r.running(want...))
	for name := range wanted {
		r.unwant(name)
	}
	r.await("all gone", r.nothing(""))
}
