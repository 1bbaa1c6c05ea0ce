package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// client obeys the law of calls for one volume, as far as it knows from answers.
type client struct {
	path    string
	conn    *grpc.ClientConn
	random  *rand.Rand
	volume  string
	staging string
	targets [2]string

	staged    condition
	args      string // of the stage
	published [2]condition
}

// call calls, in one of ten cases with a connection that breaks soon, and returns the outcome as the client sees it.
func (c *client) call(do func(context.Context, csi.NodeClient) error) (outcome, error) {
	if c.conn == nil {
		conn, err := grpc.NewClient("unix://"+c.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return uncertain, err
		}
		c.conn = conn
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if c.random.IntN(10) == 0 {
		conn := c.conn
		timer := time.AfterFunc(time.Duration(c.random.IntN(2000))*time.Microsecond, func() { _ = conn.Close() })
		err := do(ctx, csi.NewNodeClient(conn))
		if timer.Stop() {
			_ = conn.Close()
		}
		c.conn = nil // even if there is an answer: a client that was killed hasn't recorded it
		return uncertain, err
	}
	err := do(ctx, csi.NewNodeClient(c.conn))
	return outcomeOf(driver.Call{Code: status.Code(err).String()}), err
}

func (c *client) capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: writer.GetAccessMode(), AccessType: &csi.VolumeCapability_Mount{
		Mount: &csi.VolumeCapability_MountVolume{MountFlags: []string{c.args}}}}
}

func (c *client) stage() error {
	o, err := c.call(func(ctx context.Context, n csi.NodeClient) error {
		_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: c.volume, StagingTargetPath: c.staging,
			VolumeCapability: c.capability()})
		return err
	})
	c.staged = c.staged.next(false, o)
	return err
}

func (c *client) unstage() error {
	o, err := c.call(func(ctx context.Context, n csi.NodeClient) error {
		_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: c.volume, StagingTargetPath: c.staging})
		return err
	})
	c.staged = c.staged.next(true, o)
	return err
}

func (c *client) publish(i int) error {
	o, err := c.call(func(ctx context.Context, n csi.NodeClient) error {
		_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: c.volume, StagingTargetPath: c.staging,
			TargetPath: c.targets[i], VolumeCapability: c.capability()})
		return err
	})
	c.published[i] = c.published[i].next(false, o)
	return err
}

func (c *client) unpublish(i int) error {
	o, err := c.call(func(ctx context.Context, n csi.NodeClient) error {
		_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: c.volume, TargetPath: c.targets[i]})
		return err
	})
	c.published[i] = c.published[i].next(true, o)
	return err
}

// step makes one call that the law allows.
func (c *client) step() {
	i := c.random.IntN(2)
	used := c.published[0] != none || c.published[1] != none
	switch dice := c.random.IntN(3); {
	case c.staged == none || c.staged != made && dice > 0:
		if c.staged == none {
			c.args = []string{"one", "two"}[c.random.IntN(2)]
		}
		_ = c.stage()
	case c.staged == made && (used || dice > 0):
		if c.published[i] == none || dice == 0 {
			_ = c.publish(i)
		} else {
			_ = c.unpublish(i)
		}
	default:
		_ = c.unstage()
	}
}

// finish undoes everything.
func (c *client) finish(ctx context.Context) (err error) {
	for c.staged != none || c.published[0] != none || c.published[1] != none {
		if ctx.Err() != nil {
			return err
		}
		for i := range c.targets {
			if c.published[i] != none {
				err = c.unpublish(i)
			}
		}
		if c.published[0] == none && c.published[1] == none && c.staged != none {
			err = c.unstage()
		}
	}
	return nil
}

// TestLawful: clients that obey the law aren't accused, whatever fails, hangs, breaks or restarts, and nothing is left
// in the end. The seed is in the output.
func TestLawful(t *testing.T) {
	const clients, rounds = 8, 20
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := newRig(t, "STAGE_UNSTAGE_VOLUME")
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]*client, clients)
	for i := range all {
		dir := filepath.Join(r.Dir, fmt.Sprint(i))
		all[i] = &client{path: r.Endpoint, random: rand.New(rand.NewPCG(seed, uint64(i+1))),
			volume: fmt.Sprintf("volume-%d", i), staging: filepath.Join(dir, "staging"),
			targets: [2]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")},
			staged:  none, published: [2]condition{none, none}}
		if err := os.MkdirAll(all[i].staging, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	methods := []string{"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"}
	for range rounds {
		for range 6 {
			rule := driver.Rule{Method: methods[random.IntN(4)], Nth: 1 + random.IntN(5), After: random.IntN(2) == 0,
				Hold: random.IntN(3) == 0, Do: []driver.Action{"", driver.Fail, driver.Fail, driver.Cut}[random.IntN(4)],
				Code: codes.Code(1 + random.IntN(16))}
			if rule.After && outcomeOf(driver.Call{Code: rule.Code.String()}) == refused {
				rule.Code = codes.Unavailable // a driver that has done its work can't refuse it
			}
			r.add(rule)
		}
		if random.IntN(4) == 0 {
			r.add(driver.Rule{Nth: random.IntN(40), Do: driver.Kill, After: random.IntN(2) == 0})
		}
		var running sync.WaitGroup
		for _, c := range all {
			running.Go(func() {
				for range 8 {
					c.step()
				}
			})
		}
		running.Wait()
		select {
		case <-r.Exited():
			r.Launch(t)
		default:
			if err := r.Release(r.ctx, 0); err != nil {
				<-r.Exited() // Release met a Kill
				r.Launch(t)
			}
		}
	}
	for _, c := range all {
		if err := c.finish(r.ctx); err != nil {
			t.Error(err)
		}
		if c.conn != nil {
			_ = c.conn.Close()
		}
	}
	r.CheckLaw(t)
	if mounts := driver.Mounts(t, r.Dir); len(mounts) > 0 {
		t.Errorf("mounts are left: %v", mounts)
	}
	s, err := r.State(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]int{}
	for _, c := range s.Calls {
		codes[c.Code]++
	}
	t.Logf("%d calls: %v", len(s.Calls), codes)
}
