package volumestate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
)

const directory = "claims"

// Holders reserves each claim with the access mode ReadWriteOncePod for one pod at a time (KEP-2485). The
// reservation is a file in the pod's directory, pods/UID/claims/NAMESPACE_NAME, so that it survives a restart of the
// agent; the file contains the pod's name. It is safe for concurrent use.
type Holders struct {
	layout Layout
	freed  func()
	mu     sync.Mutex
}

// NewHolders returns the Holders for the pods below the layout's directory. freed is called when claims are free
// again.
func NewHolders(l Layout, freed func()) *Holders { return &Holders{layout: l, freed: freed} }

func once(w *Wanted) bool {
	return w.Spec.Claim != nil && slices.Contains(w.Spec.Claim.Spec.AccessModes, v1.ReadWriteOncePod)
}

func (h *Holders) file(uid types.UID, c *v1.PersistentVolumeClaim) string {
	return filepath.Join(h.layout.Pod(uid), directory, c.Namespace+"_"+c.Name)
}

// Reserve reserves the ReadWriteOncePod claims of the pod: all of them, or none if another pod has one of them, so
// that two pods never wait for each other. It returns the volumes that the pod may use. The pod's directory has to
// exist.
func (h *Holders) Reserve(p *v1.Pod, wants []*Wanted) (may []*Wanted, problems []Problem) {
	if !slices.ContainsFunc(wants, once) {
		return wants, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range wants {
		if !once(w) {
			may = append(may, w)
		} else if err := h.check(p.UID, w.Spec.Claim); err != nil {
			problems = append(problems, Problem{Spec: w.Spec, Err: err})
		}
	}
	if len(problems) > 0 {
		return may, problems
	}
	for _, w := range wants {
		if once(w) {
			if err := h.mark(p, w.Spec.Claim); err != nil {
				problems = append(problems, Problem{Spec: w.Spec, Err: err})
				continue
			}
			may = append(may, w)
		}
	}
	return may, problems
}

// mark writes the file that reserves the claim for the pod.
func (h *Holders) mark(p *v1.Pod, c *v1.PersistentVolumeClaim) error {
	file := h.file(p.UID, c)
	err := safeopen.Check("claim", filepath.Base(file))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o750)
	}
	if err == nil {
		err = atomicfile.WriteVolatile(file, []byte(p.Namespace+"/"+p.Name), 0o600)
	}
	if err != nil {
		return fmt.Errorf("record that the claim is this pod's: %w", err)
	}
	return nil
}

// check returns an error if another pod has reserved the claim.
func (h *Holders) check(uid types.UID, c *v1.PersistentVolumeClaim) error {
	uids, err := h.layout.UIDs()
	if err != nil {
		return err
	}
	for _, other := range uids {
		if other == uid {
			continue
		}
		holder, err := read(h.file(other, c))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read which pod has the claim: %w", err)
		}
		claim := pod.Object{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name}
		return volume.Awaits(claim,
			// Monitors, and Kubernetes' own specs, look for the words from "volume" to "pod".
			"%s: volume uses the ReadWriteOncePod access mode and is already in use by another pod, %s (UID %s): "+
				"remove that pod, or use another claim", claim, holder, other)
	}
	return nil
}

func read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024)) // names are much shorter
	return string(text), err
}

// GiveBack releases the ReadWriteOncePod claims of a pod.
func (h *Holders) GiveBack(uid types.UID) error {
	freed, err := h.giveBack(uid)
	if freed {
		h.freed() // not under the lock: the woken pod may call Reserve at once
	}
	return err
}

func (h *Holders) giveBack(uid types.UID) (freed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir := filepath.Join(h.layout.Pod(uid), directory)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := os.RemoveAll(dir); err != nil { // only the agent can write there
		return false, fmt.Errorf("free the pod's claims: %w", err)
	}
	return true, nil
}
