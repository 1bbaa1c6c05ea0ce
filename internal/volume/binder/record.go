package binder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	recordName = "bindings.json"
	// version is the version of the file's format.
	version = 1
)

// claimID identifies a claim, even when its manifest is missing.
type claimID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pod is the UID of the pod that owns an ephemeral claim; empty for a claim from a manifest.
	Pod types.UID `json:"pod,omitempty"`
}

func (id claimID) object() pod.Object {
	return pod.Object{Kind: "PersistentVolumeClaim", Namespace: id.Namespace, Name: id.Name}
}

// String returns the claim's name for messages.
func (id claimID) String() string { return id.object().String() }

// binding is a volume and the claim that it is bound to.
type binding struct {
	Volume string  `json:"volume"`
	Claim  claimID `json:"claim"`
	// Released says that the claim is that of an ephemeral volume, and that its pod was removed. A static pod may
	// come back with the same UID: its ephemeral volume is then bound to another PersistentVolume.
	Released bool `json:"released,omitempty"`
	// Former says that the binding has ended, because the manifests of the claim and of the volume were removed. If
	// the volume comes back, any claim may be bound to it. If this claim comes back, too, it prefers this volume.
	Former bool `json:"former,omitempty"`
	// Users are the pods that use the claim and weren't removed yet. It is empty for ephemeral claims. The slice is
	// never modified.
	Users []types.UID `json:"users,omitempty"`
}

// usedBy returns the binding with the pod among its users. A binding of an ephemeral claim isn't changed.
func (had binding) usedBy(uid types.UID) binding {
	if had.Claim.Pod == "" && !slices.Contains(had.Users, uid) {
		had.Users = append(slices.Clone(had.Users), uid)
	}
	return had
}

// bindings maps volumes' names to current and former bindings. The map is never modified.
type bindings map[string]binding

// of returns the current binding of a claim.
func (s bindings) of(id claimID) (binding, bool) {
	return s.find(func(had binding) bool { return had.Claim == id && !had.Released && !had.Former })
}

// ephemeral returns the binding of the ephemeral claim with this name, if its pod wasn't removed.
func (s bindings) ephemeral(namespace, name string) (binding, bool) {
	return s.find(func(had binding) bool {
		return had.Claim.Namespace == namespace && had.Claim.Name == name && had.Claim.Pod != "" && !had.Released
	})
}

func (s bindings) find(wanted func(binding) bool) (binding, bool) {
	for _, had := range s {
		if wanted(had) {
			return had, true
		}
	}
	return binding{}, false
}

// with returns the bindings with another one, which replaces the former bindings of its claim.
func (s bindings) with(one binding) bindings {
	next := maps.Clone(s)
	maps.DeleteFunc(next, func(_ string, had binding) bool { return had.Former && had.Claim == one.Claim })
	next[one.Volume] = one
	return next
}

// without ends the bindings for which gone returns true: it marks them as former, or drops them if their claim is
// ephemeral, because such a claim never comes back.
func (s bindings) without(gone func(binding) bool) (next bindings, changed bool) {
	next = maps.Clone(s)
	for name, had := range s {
		if had.Former || !gone(had) {
			continue
		}
		changed = true
		if had.Claim.Pod != "" {
			delete(next, name)
			continue
		}
		had.Former = true
		next[name] = had
	}
	return next, changed
}

// forget removes a pod from the users of claims, and marks its ephemeral claims as released.
func (s bindings) forget(uid types.UID) (next bindings, changed bool) {
	next = maps.Clone(s)
	for name, had := range s {
		switch {
		case uid != "" && had.Claim.Pod == uid && !had.Released:
			had.Released = true
		case slices.Contains(had.Users, uid):
			had.Users = slices.DeleteFunc(slices.Clone(had.Users), func(u types.UID) bool { return u == uid })
		default:
			continue
		}
		next[name], changed = had, true
	}
	return next, changed
}

// pods lists the pods that use a bound claim or own a bound ephemeral claim, sorted by UID.
func (s bindings) pods() []types.UID {
	var list []types.UID
	for _, had := range s {
		list = append(list, had.Users...)
		if had.Claim.Pod != "" && !had.Released {
			list = append(list, had.Claim.Pod)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Restore reads the existing bindings. Call it once, before any other method. The error is a message for the user.
// After an error, the binder only uses claims and volumes that name each other in their manifests (spec.volumeName,
// spec.claimRef). Other claims wait, so that no claim is bound to another claim's volume.
func (b *Binder) Restore() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	checkpoint.Sweep(b.path)
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		b.unknown = nil
		return nil
	}
	if err == nil {
		b.bound, err = parse(text)
	}
	if err != nil {
		b.bound, b.unknown = bindings{}, refused(b.path, err)
		return b.unknown
	}
	b.unknown = nil
	return nil
}

// refused returns an error that explains why the record of bindings can't be used, and what to do about it.
func refused(path string, why error) error {
	what := "restore the file from a copy, or have each claim and its volume name each other (spec.volumeName and " +
		"spec.claimRef), " +
		"delete the file and restart the agent"
	if errors.Is(why, checkpoint.ErrNewer) {
		what = "run that version"
	}
	return fmt.Errorf("the record of volume bindings, %s, can't be used: %w; %s", path, why, what)
}

func parse(text []byte) (bindings, error) {
	var list []binding
	if err := checkpoint.Open(text, version, &list); err != nil {
		return nil, err
	}
	bound := make(bindings, len(list))
	for _, one := range list {
		if one.Volume == "" || one.Claim.Namespace == "" || one.Claim.Name == "" {
			return nil, errors.New("it has an entry without a name")
		}
		if _, twice := bound[one.Volume]; twice {
			return nil, fmt.Errorf("it has PersistentVolume %s twice", one.Volume)
		}
		if other, twice := bound.of(one.Claim); twice && !one.Released && !one.Former {
			return nil, fmt.Errorf("it has %s twice, with PersistentVolumes %s and %s", one.Claim, other.Volume,
				one.Volume)
		}
		bound[one.Volume] = one
	}
	return bound, nil
}

// save replaces the bindings, on disk first and then in memory.
func (b *Binder) save(next bindings) error {
	list := slices.SortedFunc(maps.Values(next), func(a, b binding) int { return cmp.Compare(a.Volume, b.Volume) })
	text, err := checkpoint.Seal(version, list)
	if err != nil {
		return fmt.Errorf("the record of volume bindings can't be encoded: %w", err)
	}
	if err := b.replace(text); err != nil {
		return fmt.Errorf("the record of volume bindings can't be kept on disk: %w", err)
	}
	b.bound = next
	return nil
}

func (b *Binder) replace(text []byte) error {
	defer b.conf.Writes.Track(b.path)()
	if err := os.MkdirAll(b.conf.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(b.path, text, 0o600); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(b.conf.Dir)) // the directory may be new
}
