package nodefacts_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

func writer(t *testing.T, b *nodefacts.Board, what nodefacts.Field) *nodefacts.Writer {
	t.Helper()
	w, err := b.Writer("a test", what)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func woken(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAFactHasOneWriter(t *testing.T) {
	b := nodefacts.NewBoard(nodefacts.Facts{Labels: map[string]string{"a": "b"}})
	w := writer(t, b, nodefacts.HostIPs|nodefacts.UID)
	if _, err := b.Writer("another", nodefacts.UID|nodefacts.Labels); err == nil {
		t.Error("the UID got a second writer")
	}
	writer(t, b, nodefacts.Labels) // the refused one has taken nothing
	before := b.Now()
	w.Set(func(f *nodefacts.Facts) { f.UID, f.Labels = "1", nil })
	if now := b.Now(); now.UID != "1" || now.Labels["a"] != "b" {
		t.Errorf("facts are %+v: want the new UID, and the labels that somebody else writes", now)
	}
	if before.UID != "" {
		t.Error("facts that were read before have changed")
	}
}

func TestAChangeWakesWhomItConcerns(t *testing.T) {
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	b := nodefacts.NewBoard(nodefacts.Facts{Allocatable: one})
	w := writer(t, b, nodefacts.All)
	ips, stop := b.Watch(nodefacts.HostIPs | nodefacts.Labels)
	room, stopRoom := b.Watch(nodefacts.Allocatable)
	defer stopRoom()
	w.Set(func(f *nodefacts.Facts) { f.HostIPs = []string{"192.0.2.1"} })
	w.Set(func(f *nodefacts.Facts) { f.Labels = map[string]string{"a": "b"} })
	if !woken(ips) || woken(ips) {
		t.Error("two changes don't wake once")
	}
	w.Set(func(f *nodefacts.Facts) {
		f.HostIPs = []string{"192.0.2.1"}
		f.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000m")}
	})
	if woken(ips) || woken(room) {
		t.Error("the same facts once more wake somebody")
	}
	w.Set(func(f *nodefacts.Facts) { f.Allocatable = nil })
	if woken(ips) || !woken(room) {
		t.Error("a change of allocatable wakes others than those who watch that")
	}
	stop()
	stop()
	w.Set(func(f *nodefacts.Facts) { f.HostIPs = nil })
	if woken(ips) {
		t.Error("who has stopped watching is woken")
	}
}

func TestWritersAtOnce(t *testing.T) {
	b := nodefacts.NewBoard(nodefacts.Facts{})
	ips, taints := writer(t, b, nodefacts.HostIPs), writer(t, b, nodefacts.Taints)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			ips.Set(func(f *nodefacts.Facts) { f.HostIPs = append(f.HostIPs[:len(f.HostIPs):len(f.HostIPs)], fmt.Sprint(i)) })
		})
		all.Go(func() {
			taints.Set(func(f *nodefacts.Facts) { f.Taints = append(f.Taints[:len(f.Taints):len(f.Taints)], v1.Taint{}) })
		})
	}
	all.Wait()
	if now := b.Now(); len(now.HostIPs) != 100 || len(now.Taints) != 100 {
		t.Errorf("of 100 changes each, %d and %d are there", len(now.HostIPs), len(now.Taints))
	}
}

// No volumes in use isn't the same as volumes that aren't determined yet.
func TestVolumes(t *testing.T) {
	b := nodefacts.NewBoard(nodefacts.Facts{})
	w := writer(t, b, nodefacts.InUse|nodefacts.ReportedInUse|nodefacts.VolumesAttached)
	changed, stop := b.Watch(nodefacts.InUse)
	defer stop()
	for _, list := range [][]v1.UniqueVolumeName{{}, {"a"}, {"a", "b"}, {"b", "a"}, {}, nil} {
		w.Set(func(f *nodefacts.Facts) { f.InUse = list })
		if got := b.Now().InUse; (got == nil) != (list == nil) || !slices.Equal(got, list) || !woken(changed) {
			t.Errorf("set to %v, it is %v", list, got)
		}
		w.Set(func(f *nodefacts.Facts) { f.InUse = slices.Clone(list) })
		if woken(changed) {
			t.Errorf("%v again wakes", list)
		}
	}
	w.Set(func(f *nodefacts.Facts) {
		f.ReportedInUse = []v1.UniqueVolumeName{"a", "b"}
		f.VolumesAttached = []v1.AttachedVolume{{Name: "b"}, {Name: "c"}}
	})
	for name, want := range map[v1.UniqueVolumeName]bool{"a": false, "b": true, "c": false, "": false} {
		if b.Now().Attached(name) != want {
			t.Errorf("%q is attached: %v", name, !want)
		}
	}
}

// A CSINode object without drivers isn't the same as no object.
func TestAnEmptyCSINode(t *testing.T) {
	b := nodefacts.NewBoard(nodefacts.Facts{})
	w := writer(t, b, nodefacts.CSINode)
	changed, stop := b.Watch(nodefacts.CSINode)
	defer stop()
	for _, entries := range []map[string]nodefacts.CSIEntry{{}, {"a": {Generation: 1}}, {"a": {Generation: 2}}, nil} {
		w.Set(func(f *nodefacts.Facts) { f.CSINode = entries })
		if got := b.Now().CSINode; (got == nil) != (entries == nil) || got["a"] != entries["a"] || !woken(changed) {
			t.Errorf("set to %v, it is %v", entries, got)
		}
		w.Set(func(f *nodefacts.Facts) { f.CSINode = entries })
		if woken(changed) {
			t.Errorf("%v again wakes", entries)
		}
	}
}
