package view

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// Volumes has the volumes that drivers may hold: manager.Manager.
type Volumes interface {
	Held() ([]volumestate.Held, error)
	Forget(ctx context.Context, uid types.UID, name string) (device string, err error)
	ForgetDevice(ctx context.Context, key string) error
}

// Volumes lists the volumes that drivers may hold.
func (v View) Volumes() ([]local.Volume, error) {
	held, err := v.conf.Volumes.Held()
	list := make([]local.Volume, 0, len(held))
	for _, h := range held {
		l := local.Volume{ID: h.Device, Driver: h.Program, Handle: h.Handle, Waits: h.Waits,
			State: local.VolumeReleasing}
		if h.Device == "" {
			l.ID = string(h.UID) + "/" + h.Name
			if e := v.conf.Statuses.Get(h.UID); e != nil {
				l.Pod = e.Pod.Namespace + "/" + e.Pod.Name
			}
		}
		switch {
		case !h.Wanted:
		case h.Device != "":
			l.State = local.VolumeStaged
		case h.Mounted:
			l.State = local.VolumeMounted
		default:
			l.State = local.VolumeMounting
		}
		list = append(list, l)
	}
	return list, err
}

// ForgetVolume removes a volume without its driver, and wakes the pods that wait for a driver.
func (v View) ForgetVolume(ctx context.Context, id string) (forgotten local.Forgotten, err error) {
	if !v.conf.Desired.Current().Synced || !v.conf.Observed.Listed() {
		return forgotten, &local.StatusError{Code: http.StatusServiceUnavailable, Err: errors.New(
			"the agent hasn't listed all pods yet, and one of them may use the volume: try again once the runtime " +
				"and the API server have answered")}
	}
	uid, name, _ := strings.Cut(id, "/")
	if driver, _, staged := strings.Cut(id, "^"); staged && !strings.Contains(driver, "/") {
		err = v.conf.Volumes.ForgetDevice(ctx, id)
	} else {
		forgotten.Staged, err = v.conf.Volumes.Forget(ctx, types.UID(uid), name)
	}
	if refusal, ok := errors.AsType[*volumestate.Refusal](err); ok {
		code := http.StatusConflict
		if refusal.Unknown {
			code = http.StatusNotFound
		}
		return forgotten, &local.StatusError{Code: code, Err: refusal}
	}
	if err == nil {
		v.conf.Forgotten()
	}
	return forgotten, err
}
