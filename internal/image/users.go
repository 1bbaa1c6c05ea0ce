package image

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods lists the pods of this node.
type Pods interface {
	// Wanted lists the pods that should run here. all reports whether every pod source has reported.
	Wanted() (list []*pod.Desired, all bool)
	// Ended reports whether the pod has ended for good: none of its containers starts again.
	Ended(types.UID) bool
	// Observed lists the pods in the runtime. all reports whether the list is complete.
	Observed() (list []*pod.Observed, all bool)
}

// Users implements gc.Users: it lists the images that pods use.
type Users struct{ Pods Pods }

// InUse lists the uses of images by the runtime's containers and by the specs of pods that should run and haven't ended
// for good.
func (u Users) InUse(context.Context) (uses []gc.Use, err error) {
	wanted, all := u.Pods.Wanted()
	if !all {
		err = fmt.Errorf("%w: not all sources of pods have reported", gc.ErrUsesUnknown)
	}
	observed, all := u.Pods.Observed()
	if !all {
		err = fmt.Errorf("%w: the runtime's containers haven't been listed", gc.ErrUsesUnknown)
	}
	for _, o := range observed {
		for i := range o.Containers {
			c := &o.Containers[i]
			user := gc.User{Pod: o.Namespace + "/" + o.Name, Container: c.Name}
			if c.Ended() {
				user.How = "ended"
			}
			uses = append(uses, gc.Use{Image: c.ImageRef, User: user})
		}
	}
	for _, d := range wanted {
		if u.Pods.Ended(d.Pod.UID) {
			continue
		}
		uses = append(uses, wantedImages(d.Pod)...)
	}
	return uses, err
}

// wantedImages lists the images in a pod's spec.
func wantedImages(p *v1.Pod) []gc.Use {
	var uses []gc.Use
	name := p.Namespace + "/" + p.Name
	for container := range pod.ContainerNames(p) {
		if c := pod.ContainerNamed(p, container); c != nil {
			uses = append(uses, gc.Use{Image: c.Image, User: gc.User{Pod: name, Container: container}})
		}
	}
	for i := range p.Spec.Volumes {
		if source := p.Spec.Volumes[i].Image; source != nil {
			uses = append(uses, gc.Use{Image: source.Reference, User: gc.User{Pod: name, How: "image volume"}})
		}
	}
	return uses
}
