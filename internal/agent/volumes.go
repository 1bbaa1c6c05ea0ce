package agent

import (
	"context"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/allocation"
	"github.com/deckhand-node/deckhand/internal/grant"
	nodeimage "github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/nodeimages"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/configmap"
	"github.com/deckhand-node/deckhand/internal/volume/downwardapi"
	"github.com/deckhand-node/deckhand/internal/volume/emptydir"
	"github.com/deckhand-node/deckhand/internal/volume/hostpath"
	"github.com/deckhand-node/deckhand/internal/volume/image"
	"github.com/deckhand-node/deckhand/internal/volume/lacking"
	"github.com/deckhand-node/deckhand/internal/volume/localvolume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/ownership"
	"github.com/deckhand-node/deckhand/internal/volume/projected"
	"github.com/deckhand-node/deckhand/internal/volume/secret"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// buildVolumes makes what knows pods' volumes.
func (a *Agent) buildVolumes() {
	a.claims = binder.New(binder.Config{Dir: filepath.Join(a.dirs.Checkpoints(), "volumes"), NodeLabels: a.cfg.NodeLabels, Objects: a.objects, Recorder: a.events}, a.log.WithName("claims"))
	a.diskMeter = usage.New(usage.Config{Took: a.diskMeasured})
	a.volumesChanged = make(chan struct{}, 1)
	a.volumes = manager.New(manager.Config{
		RootDir: a.cfg.RootDir, Plugins: a.volumePlugins(), Claims: a.claims, Objects: a.objects,
		SubPaths: subpath.New(a.dirs.Pods()), Own: ownership.Apply,
		Changed: a.volumesChanged, Pod: a.grantedPod, Running: a.hasContainers, Freed: a.objectsChanged,
		Recorder: a.events, Meter: a.metrics.Volumes, ClusterDomain: a.cfg.Kubelet.ClusterDomain,
	}, a.log.WithName("volume"))
}

// volumePlugins are asked in this order; the last one takes, and refuses, what is left.
func (a *Agent) volumePlugins() []volume.Plugin {
	return []volume.Plugin{
		measured{emptydir.New(emptydir.Config{MemoryLimit: resources.MemoryLimit}), a.diskMeter, a.log.WithName("volume")},
		configmap.New(a.objects),
		secret.New(a.objects),
		downwardapi.New(a.node.allocatable),
		projected.New(a.objects, a.node.allocatable),
		hostpath.Plugin{},
		localvolume.Plugin{},
		image.New(volumeImages{a.images, a.metrics.Volumes}),
		lacking.New(),
	}
}

// podVolumes are the volumes of pods, of which more may be left than folders: an agent that is killed may have bound
// a claim for a pod that has none yet, and a record that was restored from a copy may name pods of the past.
type podVolumes struct {
	*manager.Manager
	claims *binder.Binder
}

// Orphans lists the pods that have a folder or claims, wanted or not.
func (v podVolumes) Orphans() ([]types.UID, error) {
	uids, err := v.Manager.Orphans()
	for _, uid := range v.claims.Pods() {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids, err
}

// startClaims reads which claims are bound. Without that no claim gets a volume, but pods without
// claims run.
func (a *Agent) startClaims(context.Context) error {
	if err := a.claims.Restore(); err != nil {
		a.log.Error(err, "Claims can't be bound")
	}
	return nil
}

// tidyClaims lets go of PersistentVolumes whose manifests, and whose claims', are gone. The end of pods that used
// them has the binder look for itself.
func (a *Agent) tidyClaims(ctx context.Context) {
	if err := a.claims.Tidy(ctx); err != nil {
		a.log.Error(err, "PersistentVolumes whose manifests are gone stay taken")
	}
}

// lookAtVolumes has volumes written anew whose content may have changed.
func (a *Agent) lookAtVolumes() {
	select {
	case a.volumesChanged <- struct{}{}:
	default:
	}
}

// grantedPod is the newest version of a pod, with the resources it was granted; nil if nobody wants it.
func (a *Agent) grantedPod(uid types.UID) *v1.Pod {
	d := a.merger.Current().Get(uid)
	if d == nil {
		return nil
	}
	return grant.Apply(d.Pod, a.grants.Get(uid))
}

// hasContainers reports whether the runtime has containers of the pod that may use its volumes.
func (a *Agent) hasContainers(uid types.UID) bool {
	o := a.observed.Get(uid)
	if o == nil {
		return false
	}
	for i := range o.Containers {
		if !o.Containers[i].Ended() {
			return true
		}
	}
	return false
}

// volumeImages offers the node's images to image volumes.
type volumeImages struct {
	images *nodeimages.Images
	m      *metrics.Volumes
}

func (v volumeImages) Ensure(ctx context.Context, r image.Request) (image.Image, error) {
	v.m.ImageRequested()
	got, err := v.images.Ensure(ctx, nodeimage.Request{Image: r.Image, Policy: r.Policy, Pod: r.Pod, Pulling: func() {}})
	if ctx.Err() == nil { // what was given up is no failure
		v.m.ImageMounted(err != nil)
	}
	return image.Image{Ref: got.Ref}, err
}

// grants offers what pods are granted to the effects: volumes tell pods of their resources, too.
type grants struct {
	*allocation.Manager
	changed func()
}

func (g grants) Admit(p *v1.Pod) (*pod.Allocation, error) {
	granted, err := g.Manager.Admit(p)
	g.changed()
	return granted, err
}

func (g grants) Resize(p *v1.Pod) (*pod.Allocation, error) {
	granted, err := g.Manager.Resize(p)
	if err == nil {
		g.changed()
	}
	return granted, err
}
