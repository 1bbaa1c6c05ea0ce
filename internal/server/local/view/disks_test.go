package view

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
)

// disks are the disks that are full.
type disks []stats.FullDisk

func (d disks) FullDisks(context.Context) []stats.FullDisk { return d }

// answers reports that all disks answer.
func answers() (string, time.Time) { return "", time.Time{} }

// TestHungDisk: a disk that doesn't answer is a problem of the node, and the cause of waits for what is written to it.
func TestHungDisk(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := New(Config{Disks: disks{}, Thrashing: func() string { return "" },
		Hanging: func() (string, time.Time) { return "/root/kept.json", began }})
	const want = "doesn't answer: a write of /root/kept.json hasn't returned since 2026-01-02T03:04:05Z"
	if list := v.shortages(t.Context()); len(list) != 1 || list[0].Message != "it "+want || list[0].Since != began {
		t.Errorf("%+v", list)
	}
	for action, causes := range map[pod.ActionKind][]string{pod.SaveCheckpoint: {"the disk " + want}, pod.StartContainer: nil} {
		w := pod.Wait{Code: pod.WaitAction, Action: action}
		if got := v.causes(t.Context(), nil, &w); !cmp.Equal(got, causes) {
			t.Errorf("%s: %q", action, got)
		}
	}
}

// TestFullDisk: a full disk is a problem of the node, with who uses it and what to do, and the cause of what waits for it.
func TestFullDisk(t *testing.T) {
	full := stats.FullDisk{FileSystem: room.FileSystem{Point: "/data", Size: 1 << 30, Inodes: 1000, FreeInodes: 999},
		Holds: []string{"the root directory", "images"},
		Most:  []stats.DiskUser{{Name: "pod default/hog", Bytes: 512 << 20}, {Name: "images", Bytes: 256 << 20}, {Name: "other files", Bytes: 200 << 20}}}
	none := stats.FullDisk{FileSystem: room.FileSystem{Point: "/data", Size: 1 << 30, Free: 1 << 29, Inodes: 1000},
		Holds: []string{"the root directory", "images", "the pods' logs"}, Most: []stats.DiskUser{{Name: "pod default/hog", Inodes: 900}}}
	const space = "is full: 0 B of 1.0 GiB and 999 of 1000 inodes are free, most is used by pod default/hog (512.0 MiB), " +
		"images (256.0 MiB) and other files (200.0 MiB); it has the root directory and images"
	const inodes = "is full: 512.0 MiB of 1.0 GiB and 0 of 1000 inodes are free, most is used by pod default/hog (900 inodes); " +
		"it has the root directory, images and the pods' logs"
	for _, tc := range []struct {
		disk    stats.FullDisk
		alone   bool
		message string
		advice  string
	}{{full, true, space, "deckhand stop"}, {none, false, inodes, "kubectl delete pod"}} {
		statuses := podstatus.NewStore()
		v := New(Config{Statuses: statuses, Desired: desired.New(logr.Discard()), Cluster: &troubles{}, Disks: disks{tc.disk}, Hanging: answers, Probes: noProbes{},
			RuntimeProblems: func() []pod.Problem { return nil }, Pulls: func(context.Context) image.Underway { return nil },
			Rank: func(types.UID) *pressure.Rank { return nil }, Thrashing: func() string { return "" },
			Current: func() *config.Config { return &config.Config{Standalone: tc.alone} }})
		list := v.problems(t.Context(), nil)
		if p := list[len(list)-1]; p.Origin != "disk /data" || !p.General || p.Message != "it "+tc.message || !strings.Contains(p.Advice, tc.advice) || !strings.Contains(p.Advice, "deckhand images prune") {
			t.Errorf("%+v, want %q", p, tc.message)
		}
		p := &v1.Pod{}
		p.Name, p.UID = "p", "p"
		statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{}, Waits: []pod.Wait{
			{Code: pod.WaitRetry, Action: pod.PreparePod, Disk: true},
			{Code: pod.WaitBackOff, Reason: pod.ReasonStartError, Disk: true},
			{Code: pod.WaitRetry, Action: pod.CreateSandbox, Message: "unable to retrieve OCI runtime error"},
			{Code: pod.WaitBackOff, Reason: pod.ReasonStartError},
			{Code: pod.WaitBackOff, ExitCode: 1},
			{Code: pod.WaitRetry, Action: pod.PreparePod},
			{Code: pod.WaitAction, Action: pod.StartContainer},
		}})
		for i, w := range v.Details(t.Context(), p.UID).Waits {
			want := []string{"the disk /data " + tc.message}
			if i >= 4 {
				want = nil
			}
			if !cmp.Equal(w.Because, want) {
				t.Errorf("wait %d: because of %q, want %q", i, w.Because, want)
			}
		}
	}
}
