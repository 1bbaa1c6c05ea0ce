package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// nothing is a runtime without containers, and a recorder that forgets.
type nothing struct{}

func (nothing) WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error) {
	return nil, nil
}
func (nothing) Evicted(string) {}

// verdict has a pod with a user namespace of its own write more than it may.
func (d *disk) verdict(ctx context.Context, _ *usage.Meter) error {
	dir, err := d.directory("data")
	if err != nil {
		return err
	}
	m := newMeter()
	if _, err := m.Assign(dir); err != nil { // as the volume's maker does
		return err
	}
	if err := os.WriteFile(dir+"/file", make([]byte, 2<<20), 0o600); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	manager := storagelimits.New(storagelimits.Config{
		Pods:   func() []storagelimits.Pod { return []storagelimits.Pod{over(dir)} },
		Layers: nothing{}, Meter: m, Logs: d.top, Evictions: nothing{}, Log: logr.Discard(),
		Wake: func(types.UID) { stop() },
	})
	if err := manager.Run(ctx); err != nil {
		return err
	}
	reported := "none"
	if e := manager.Termination("uid"); e != nil {
		reported = e.Message
	}
	d.tell(reported, "verdict")
	return nil
}

// over is a pod with an emptyDir volume that may hold 1 MiB.
func over(dir string) storagelimits.Pod {
	hostUsers, limit := false, resource.MustParse("1Mi")
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid"}, Spec: v1.PodSpec{
		HostUsers: &hostUsers,
		Volumes:   []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}},
	}}
	return storagelimits.Pod{Pod: p, Volumes: []volume.Instance{{Pod: p, Spec: volume.Spec{Volume: &p.Spec.Volumes[0]}, Place: volume.Place{Dir: dir}}}}
}
