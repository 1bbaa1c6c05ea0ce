package csi

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// An agent is killed at each of its steps: before each change of a file or directory, and before, during and after
// each call. The next agent uses the volume again, or releases it. The driver never sees a call that the law of calls
// doesn't allow, and in the end nothing is left.
func TestKilledAgent(t *testing.T) {
	r := newKillRig(t)
	for name, c := range map[string]struct {
		uid   types.UID
		again bool
	}{
		"an inline volume is used again": {"u-a", true},
		"a claim is used again":          {"u-c", true},
		"a claim is released":            {"u-c", false},
	} {
		killtest.Run(t, killtest.Case{Name: name,
			Child: func(dir string) error {
				s := r.child(t, dir)
				q := s.of(c.uid)
				err := s.use(q)
				if err == nil {
					_, err = s.plugin.Refresh(t.Context(), q)
				}
				if err == nil {
					err = s.leave(q)
				}
				return err
			},
			Check: func(t *testing.T, dir string, _ int) {
				s := r.next(t, dir)
				q := s.of(c.uid)
				if s.hung() {
					s.restart(impatient)
					if c.again {
						_ = s.use(q) // the driver may still work on the call of the killed agent
					} else {
						_ = s.leave(q)
					}
				}
				if c.again {
					s.answer()
					if err := s.use(q); err != nil {
						t.Fatal(err)
					}
					s.usable(q)
					if _, err := s.plugin.Refresh(t.Context(), q); err != nil {
						t.Error(err)
					}
				}
				s.end(c.uid)
				r.driver.CheckLaw(t)
				s.called()
			}})
	}
	killtest.Run(t, killtest.Case{Name: "published again while containers use it",
		Fresh: func(t *testing.T, dir string) {
			s := r.next(t, dir)
			s.restart(time.Minute)
			if err := s.use(s.of("u-a")); err != nil {
				t.Fatal(err)
			}
		},
		Child: func(dir string) error {
			s := r.child(t, dir)
			_, err := s.plugin.Refresh(t.Context(), s.of("u-a"))
			return err
		},
		Check: func(t *testing.T, dir string, _ int) {
			s := r.next(t, dir)
			s.answer()
			s.called()
			q := s.of("u-a")
			q.InUse = true
			if err := s.use(q); err != nil {
				t.Error(err)
			}
			s.wantCalls()
			s.end("u-a")
			r.driver.CheckLaw(t)
		}})
}

// killRig has the driver, which outlives the agents that are killed.
type killRig struct{ *rig }

// killEnv has the driver's directory, for the processes that are killed.
const killEnv = "DECKHAND_TEST_CSI_DRIVER"

func newKillRig(t *testing.T) killRig {
	t.Helper()
	if killtest.PID() == os.Getpid() {
		r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
		t.Setenv(killEnv, r.driver.Dir)
		t.Setenv("TMPDIR", r.root) // the driver may mount below it
		return killRig{r}
	}
	dir := os.Getenv(killEnv)
	return killRig{&rig{meter: &calls{of: map[string]int{}}, driver: &csidriver.Process{
		Client:  csidriver.NewClient(filepath.Join(dir, "control.sock")),
		Options: csidriver.Options{Endpoint: filepath.Join(dir, "csi.sock")}}}}
}

// killed is an agent with its volumes in a directory of its own.
type killed struct{ sequence }

func (r killRig) next(t *testing.T, dir string) killed {
	return killed{sequence{rig: &rig{T: t, root: dir, meter: r.meter, driver: r.driver}}}
}

// child returns an agent whose calls have steps, too.
func (r killRig) child(t *testing.T, dir string) killed {
	s := r.next(t, dir)
	s.restart(time.Minute)
	by, _ := s.drivers.newest(driverName)
	conn, err := grpc.NewClient("unix:"+s.driver.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, q, a any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			mark(dir)
			s.add(csidriver.Rule{Hold: true})
			result := make(chan error, 1)
			go func() { result <- invoke(ctx, method, q, a, conn, options...) }()
			if _, err := s.driver.Await(ctx, isHung); err != nil {
				return err
			}
			mark(dir)
			if err := s.driver.Release(ctx, 0); err != nil {
				return err
			}
			err := <-result
			mark(dir)
			return err
		}))
	if err != nil {
		t.Fatal(err)
	}
	by.conn = conn
	return s
}

// mark is a step that changes nothing.
func mark(dir string) { _ = unix.Unlink(filepath.Join(dir, "nothing")) }

func isHung(s csidriver.State) bool {
	for _, c := range s.Calls {
		if c.Held {
			return true
		}
	}
	return false
}

// hung reports whether the driver works on a call.
func (k killed) hung() bool {
	k.Helper()
	s, err := k.driver.State(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	return isHung(s)
}

// usable fails unless the volume is mounted, and there is nothing beside it that a kubelet wouldn't remove.
func (k killed) usable(q volume.Request) {
	k.Helper()
	if !isMount(q.Dir, targetName) {
		k.Error("the volume isn't mounted")
	}
	_, device := k.plugin.Device(q.Spec)
	for dir, want := range map[string]string{q.Dir: targetName, device: stageName} {
		entries, err := os.ReadDir(dir)
		if dir != "" && (err != nil || len(entries) != 2 || entries[0].Name() != want || entries[1].Name() != recordName) {
			k.Errorf("in %s: %v, %v", dir, entries, err)
		}
	}
}

// of returns the request for the volume of a pod, which the driver wants to be published again from time to time.
func (k killed) of(uid types.UID) volume.Request {
	q := k.sequence.of(uid)
	q.Objects = seeing(described(func(s *storagev1.CSIDriverSpec) {
		s.RequiresRepublish = ptr.To(true)
		s.VolumeLifecycleModes = append(s.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent)
	}))
	return q
}
