package csi

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

var (
	sequences = flag.Int("csi.sequences", 60, "number of random sequences")
	firstSeed = flag.Uint64("csi.seed", 1, "seed of the first random sequence")
)

// Pods with volumes come and go, the driver fails with any code, before or after its work, hangs, is cut off and dies,
// and the agent restarts: the driver never sees a call that the law of calls doesn't allow, and in the end nothing is
// left. The volumes of every second sequence have to be attached. A seed that fails: go test ./internal/volume/csi -run
// TestRandomSequences -csi.seed=N -csi.sequences=1.
func TestRandomSequences(t *testing.T) {
	rigs := []*rig{newRig(t, nil, "STAGE_UNSTAGE_VOLUME"), newAttachRig(t, "STAGE_UNSTAGE_VOLUME")}
	for seed := *firstSeed; seed < *firstSeed+uint64(*sequences) && !t.Failed(); seed++ {
		r := rigs[seed%2]
		s := sequence{rig: r, random: rand.New(rand.NewPCG(seed, 0)), mounted: map[types.UID]bool{}}
		if seed%2 == 1 {
			s.controller = newController(r)
		}
		s.restart(impatient)
		for range 25 {
			s.step()
		}
		s.end("u-a", "u-b", "u-c", "u-d")
		if s.controller != nil && !s.detach() {
			t.Error("the volume can't be detached")
		}
		r.driver.CheckLaw(t)
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(s.steps, ", "))
		}
		r.called()
	}
}

type sequence struct {
	*rig
	*controller // nil if volumes needn't be attached
	random      *rand.Rand
	stages      *volumestate.Stages
	steps       []string
	// options are the mount options of the claim's volume.
	options []string
	// mounted has the pods whose volume is mounted as far as the agent knows.
	mounted map[types.UID]bool
}

// request is the volume of one of four pods: two have inline volumes, two share a claim.
func (s *sequence) request() volume.Request {
	uid := types.UID([]string{"u-a", "u-b", "u-c", "u-d"}[s.random.IntN(4)])
	q := s.of(uid)
	q.InUse = s.mounted[uid]
	return q
}

// of returns the request for the volume of a pod.
func (s *sequence) of(uid types.UID) volume.Request {
	if uid < "u-c" {
		return asking(inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID = uid }), s.root, seeing(described()))
	}
	var from object.View = seeing()
	if s.controller != nil {
		from = s.view()
	}
	return claimed(s.root, uid, from, func(pv *v1.PersistentVolume) {
		if pv.Spec.MountOptions = s.options; s.controller != nil {
			pv.Spec.CSI.VolumeHandle = s.handle
		}
	})
}

func userOf(q volume.Request) volumestate.User {
	return volumestate.User{UID: q.UID, Name: filepath.Base(q.Dir)}
}

// impatient is the time limit of calls while the driver has faults. It may also end calls that would succeed.
const impatient = 100 * time.Millisecond

func (s *sequence) restart(patience time.Duration) {
	s.rig.restart(func(c *Config) {
		if c.Patience, c.BootID = patience, "this"; s.controller != nil {
			c.Board, c.Written = s.board, time.Nanosecond
			s.publish()
		}
	})
	s.stages = volumestate.NewStages(s.root, []volume.Stager{s.plugin}, operations.Config{})
	if err := s.stages.Adopt(s.Context()); err != nil {
		s.Error(err)
	}
	_ = s.drivers.Register(s.Context(), s.registration()) // it may be away
}

func (s *sequence) step() {
	q, what := s.request(), ""
	steps := 20
	if s.controller != nil {
		steps = 26
	}
	switch n := s.random.IntN(steps); {
	case n >= 20:
		what = s.change(s.random)
	case n < 7:
		what = "mount " + string(q.UID)
		if err := s.use(q); err == nil {
			s.mounted[q.UID] = true
		} else {
			what += " (failed)"
		}
	case n < 12:
		what = "unmount " + string(q.UID)
		s.mounted[q.UID] = false
		if err := s.leave(q); err != nil {
			what += " (failed)"
		}
	case n < 13:
		what = "restart the agent"
		s.restart(impatient)
	case n < 14:
		what = "kill the driver"
		s.driver.Kill()
		s.driver.Launch(s.T)
		_ = s.drivers.Register(s.Context(), s.registration())
	case n < 15:
		what = "the driver comes or goes"
		if s.drivers.has(driverName) {
			s.drivers.Gone(s.registration())
		} else {
			_ = s.drivers.Register(s.Context(), s.registration())
		}
	case n < 16:
		what = "other mount options"
		s.options = [][]string{nil, {"noatime"}}[s.random.IntN(2)]
	default:
		rule := csidriver.Rule{Nth: 1 + s.random.IntN(2), Method: []string{"NodeStageVolume", "NodeUnstageVolume",
			"NodePublishVolume", "NodeUnpublishVolume"}[s.random.IntN(4)]}
		switch s.random.IntN(4) {
		case 0: // a final code after the work would be a lie
			rule.Do, rule.Code = csidriver.Fail, codes.Code(1+s.random.IntN(16))
		case 1:
			rule.Do, rule.Code, rule.After = csidriver.Fail, []codes.Code{codes.Unavailable, codes.Aborted,
				codes.DeadlineExceeded}[s.random.IntN(3)], true
		case 2:
			rule.Do, rule.After = csidriver.Cut, s.random.IntN(2) == 0
		case 3:
			rule.Hold, rule.After = true, s.random.IntN(2) == 0
		}
		what = "fault in " + rule.Method + ": " + string(rule.Do) + " " + rule.Code.String()
		s.add(rule)
	}
	s.steps = append(s.steps, what)
}

// use and leave are what the manager does.
func (s *sequence) use(q volume.Request) error {
	if err := s.stages.Enter(s.Context(), s.plugin, q, userOf(q)); err != nil {
		return err
	}
	_, err := s.plugin.Mount(s.Context(), q)
	return err
}

func (s *sequence) leave(q volume.Request) error {
	if err := s.plugin.Unmount(s.Context(), q.Place, nil); err != nil {
		return err
	}
	if err := teardown.Remove(s.Context(), filepath.Dir(q.Dir), filepath.Base(q.Dir)); err != nil {
		return err
	}
	return s.stages.Leave(s.Context(), s.plugin.Name(), userOf(q), nil)
}

// answer ends the driver's faults, and restarts the agent.
func (s *sequence) answer() {
	s.Helper()
	if err := s.driver.Release(s.Context(), 0); err != nil {
		s.Fatal(err)
	}
	s.settle()
	s.restart(time.Minute)
}

// end releases all volumes with a driver that works, and checks that nothing is left.
func (s *sequence) end(uids ...types.UID) {
	s.Helper()
	s.answer()
	for _, uid := range uids {
		q := s.of(uid)
		if err := s.leave(q); err != nil {
			s.Errorf("release the volume of %s: %v", uid, err)
		}
	}
	if err := s.stages.Sweep(s.Context(), func(types.UID) bool { return false }); err != nil {
		s.Error(err)
	}
	s.nothingLeft()
}

// nothingLeft fails unless no mount, record or directory of a volume is left.
func (r *rig) nothingLeft() {
	r.Helper()
	if left := csidriver.Mounts(r.T, r.root); len(left) > 0 {
		r.Errorf("left mounted: %v", left)
	}
	for _, pattern := range []string{"pods/*/volumes/*/*", "plugins/kubernetes.io/csi/*/*", "staged/*"} {
		if left, _ := filepath.Glob(filepath.Join(r.root, pattern)); len(left) > 0 {
			r.Errorf("left: %v", left)
		}
	}
}
