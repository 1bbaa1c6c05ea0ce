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

// Holders gives claims with the access mode ReadWriteOncePod to one pod at a time (KEP-2485). A file
// in the pod's directory, pods/UID/claims/NAMESPACE_NAME, says that the claim is its, so that the next agent
// knows it; the file holds the pod's name. It is safe for concurrent use.
type Holders struct {
	layout Layout
	freed  func()
	mu     sync.Mutex
}

// NewHolders knows those of the pods below the layout's directory. freed is called when claims are
// free again.
func NewHolders(l Layout, freed func()) *Holders { return &Holders{layout: l, freed: freed} }

func once(w *Wanted) bool {
	return w.Spec.Claim != nil && slices.Contains(w.Spec.Claim.Spec.AccessModes, v1.ReadWriteOncePod)
}

func (h *Holders) file(uid types.UID, c *v1.PersistentVolumeClaim) string {
	return filepath.Join(h.layout.Pod(uid), directory, c.Namespace+"_"+c.Name)
}

// Take makes those claims the pod's that only one pod may have: all of them, or none, so that two pods
// never wait for each other. It returns the volumes that the pod may have. The pod's directory has to be there.
func (h *Holders) Take(p *v1.Pod, wants []*Wanted) (may []*Wanted, problems []Problem) {
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

// mark records that the claim is the pod's.
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

// check fails if the claim is another pod's.
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
			"%s is for one pod at a time (ReadWriteOncePod), and pod %s (UID %s) has it: remove that pod, or use "+
				"another claim", claim, holder, other)
	}
	return nil
}

func read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024)) // names are far shorter
	return string(text), err
}

// GiveBack makes the claims free that only this pod could have.
func (h *Holders) GiveBack(uid types.UID) error {
	freed, err := h.giveBack(uid)
	if freed {
		h.freed() // not under the lock: whoever is woken by that may ask again at once
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
