package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Volumes says which attachable volumes the node wants or uses. With the zero Volumes, the list in the object isn't
// changed.
type Volumes struct {
	// InUse returns the sorted names of the volumes; nil while they aren't determined yet.
	InUse func() []v1.UniqueVolumeName
	// Changed receives when InUse may have changed, Reached when the API server has recovered (Config.Reached).
	Changed, Reached <-chan struct{}
}

// together is how long a changed list waits for further changes. New names wait only if there was a call that recently:
// otherwise most likely no more come, and a pod waits for its volume to be attached.
const together = 20 * time.Millisecond

// volumesInUse maintains status.volumesInUse, and publishes which volumes are attached. It makes separate calls: a slow
// or failing call for another part of the object must not delay a volume, here or on the node that needs it next.
//
// A controller that detaches a volume removes it from status.volumesAttached, and then detaches it only if
// status.volumesInUse doesn't have it. So a volume that is in both lists of one state of the object stays attached, as
// long as no later call removes it from volumesInUse. States before the answer to the last call prove nothing.
type volumesInUse struct {
	conf  Config
	woken wake.Slot
	// The fields up to mu belong to run. reported says that the present failures were logged. at is when the last call
	// ended.
	retry    apiclient.Backoff
	reported bool
	at       time.Time

	mu sync.Mutex
	// lists is the newest state of the object that isn't older than the answer to the last call; nil if there is none.
	lists *volumeLists
	// sent is the list of the last call. Only run changes it.
	sent []v1.UniqueVolumeName
	// limit are the sorted names that are in every list that was sent but not answered; nil if all calls were answered.
	// The object may have any of these lists, now or later.
	limit []v1.UniqueVolumeName
	// answered is the list in the newest answer, and version is that answer's resource version; both are empty before
	// the first answer.
	answered []v1.UniqueVolumeName
	version  string
	// older is the newest state from the watch if it is older than the newest answer. If older stays set, the server's
	// data was restored from a backup; then the list is sent again, and the answer has a version that the watch's
	// versions can be compared with.
	older *volumeLists
	// watched says that the watch has set lists since the last call was sent.
	watched bool
}

// volumeLists are the object's lists in one state.
type volumeLists struct {
	version  string
	inUse    []v1.UniqueVolumeName
	attached []v1.AttachedVolume
}

func listsOf(o *v1.Node) *volumeLists {
	return &volumeLists{o.ResourceVersion, o.Status.VolumesInUse, o.Status.VolumesAttached}
}

// newer reports whether the lists are certainly newer than a version.
func (l *volumeLists) newer(version string) bool {
	later, _ := apiclient.Newer(l.version, version)
	return later
}

// observe processes a state that the watch has passed; nil if there is no object.
func (v *volumesInUse) observe(o *v1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var next *volumeLists
	if o != nil {
		next = listsOf(o)
	}
	if o == nil || v.version == "" || next.version == v.version || next.newer(v.version) {
		v.lists, v.older, v.watched = next, nil, true
	} else {
		v.older = next
	}
	v.publish()
	v.woken.Wake()
}

// publish sets the facts. mu is held.
func (v *volumesInUse) publish() {
	var inUse []v1.UniqueVolumeName
	var attached []v1.AttachedVolume
	if v.lists != nil {
		inUse, attached = append([]v1.UniqueVolumeName{}, v.lists.inUse...), v.lists.attached
		if v.limit != nil {
			inUse = within(inUse, v.limit)
		}
	}
	v.conf.Facts.Set(func(f *nodefacts.Facts) { f.ReportedInUse, f.VolumesAttached = inUse, attached })
}

// within removes the names from a list that the sorted list limit doesn't have.
func within(list, limit []v1.UniqueVolumeName) []v1.UniqueVolumeName {
	return slices.DeleteFunc(list, func(name v1.UniqueVolumeName) bool {
		_, has := slices.BinarySearch(limit, name)
		return !has
	})
}

// run sends changed lists until ctx ends.
func (v *volumesInUse) run(ctx context.Context) {
	for ctx.Err() == nil {
		var due <-chan time.Time
		if next := v.report(ctx); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-v.woken:
		case <-v.conf.Volumes.Reached:
			v.retry.Recovered()
		case <-v.conf.Volumes.Changed:
			wake.Sleep(ctx, v.pause())
		}
	}
}

// pause returns how long a changed list waits for further changes.
func (v *volumesInUse) pause() time.Duration {
	for _, name := range v.conf.Volumes.InUse() {
		if _, had := slices.BinarySearch(v.sent, name); !had {
			return time.Until(v.at.Add(together))
		}
	}
	return together
}

// report sends the list if that is due, and returns when to do so again; zero if nothing is to be sent.
func (v *volumesInUse) report(ctx context.Context) time.Time {
	list := v.conf.Volumes.InUse()
	due, needed := v.due(list)
	if !needed || time.Now().Before(due) {
		return due
	}
	err := v.send(ctx, list)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !v.reported && !apiclient.Unusable(err) {
			v.reported = true
			v.conf.Log.Error(err, "The node's volumes in use aren't up to date; volumes aren't attached or detached")
		}
		v.retry.Failed(err)
	default:
		if v.reported {
			v.conf.Log.Info("The node's volumes in use are up to date again", "failures", v.retry.Failures())
		}
		v.reported = false
		v.retry.Succeeded()
	}
	due, _ = v.due(list)
	return due
}

// due returns when to send this list. needed is false, and the time zero, if the object has it.
func (v *volumesInUse) due(list []v1.UniqueVolumeName) (at time.Time, needed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := slices.Equal(list, v.sent)
	expected := list
	if same && v.version != "" {
		expected = v.answered // the server may have dropped names from the list that was sent
	}
	outdated := v.lists != nil && (v.limit != nil || !slices.Equal(v.lists.inUse, expected))
	if list == nil || !outdated && v.older == nil {
		return time.Time{}, false
	}
	if same && v.limit == nil { // another client has changed it
		return v.at.Add(minGap), true
	}
	return v.retry.Due(), true
}

// send sets the object's list.
func (v *volumesInUse) send(ctx context.Context, list []v1.UniqueVolumeName) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": list}})
	if err != nil {
		return err
	}
	v.mu.Lock()
	limit := list
	if v.limit != nil {
		limit = within(slices.Clone(list), v.limit)
	}
	v.sent, v.limit, v.watched = list, limit, false
	v.publish() // before the call may remove names from the object's list
	v.mu.Unlock()
	if !slices.Equal(v.conf.Volumes.InUse(), list) {
		return nil // the list has changed meanwhile, and a pod may rely on a new name: run sends the new list at once
	}
	object, err := v.conf.API.PatchStatus(ctx, v.conf.Identity.Name, body)
	v.at = time.Now()
	if err != nil {
		return fmt.Errorf("report the volumes in use of node %s: %w", v.conf.Identity.Name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit, v.answered, v.version = nil, object.Status.VolumesInUse, object.ResourceVersion
	switch {
	case v.older != nil && v.older.newer(v.version):
		v.lists = v.older
	case v.watched && (v.lists == nil || v.lists.newer(v.version)): // the watch's state is newer
	default:
		v.lists = listsOf(object)
	}
	v.older = nil
	v.publish()
	return nil
}
