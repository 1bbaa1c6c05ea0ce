package access

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// Result is the result of MayUse, with the kubelet's label values.
type Result string

// The results of MayUse.
const (
	PolicyAllowed    Result = "credentialPolicyAllowed"
	RecordFound      Result = "credentialRecordFound"
	MustAuthenticate Result = "mustAuthenticate"
	Failed           Result = "error"
)

// Meter counts results of MayUse (kubelet_imagemanager_image_mustpull_checks_total).
type Meter interface {
	Checked(Result)
}

// Config configures Records.
type Config struct {
	// RootDir is the agent's root directory. The records are in its subdirectory image_manager.
	RootDir string
	Policy  Policy
	Meter   Meter
	Log     logr.Logger
}

// intent is an image that is being pulled, or may have been pulled without a record of it.
type intent struct {
	// image is the image's name, empty if the intent's file can't be read.
	image string
	// running counts the active pulls.
	running int
	// open means that the result of an earlier pull is unknown.
	open bool
}

// Records records which images were pulled on this node, and with which credentials, in memory and on disk. A change
// is written to disk before it takes effect in memory. It is safe for concurrent use.
//
// It fails closed: an image whose record can't be read counts as pulled with unknown credentials.
type Records struct {
	cfg                     Config
	pulling, pulled, byHand files

	mu sync.Mutex
	// key is the HMAC key of the credential hashes: without it, a reader of the records can't guess passwords.
	key []byte
	// blind is true until Load has read the records: until then, every image counts as pulled by this agent.
	blind   bool
	intents map[string]*intent                   // by file name
	records map[string]v1beta1.ImagePulledRecord // by file name; a record is empty if its file can't be read
	// imported are the records of images imported on the node, by file name; a record is empty if its file can't be
	// read.
	imported map[string]v1beta1.ImagePulledRecord
}

// New returns Records without data. Call Load to read the files.
func New(cfg Config) *Records {
	dir := filepath.Join(cfg.RootDir, directory)
	return &Records{
		cfg: cfg, pulling: files{filepath.Join(dir, pulling)}, pulled: files{filepath.Join(dir, pulled)},
		byHand: files{filepath.Join(dir, imported)},
		key:    []byte(rand.Text()), blind: true, intents: map[string]*intent{},
		records: map[string]v1beta1.ImagePulledRecord{}, imported: map[string]v1beta1.ImagePulledRecord{},
	}
}

// Load creates the directories and reads the existing records. After an error, Records is usable, and every image
// counts as pulled by this agent.
func (r *Records) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.pulling.make(), r.pulled.make(), r.byHand.make()); err != nil {
		return fmt.Errorf("records of pulled images: %w", err)
	}
	key, err := loadKey(filepath.Join(r.cfg.RootDir, directory, keyFile))
	if err != nil {
		return fmt.Errorf("records of pulled images: %w", err)
	}
	intents, err := r.pulling.names()
	if err != nil {
		return fmt.Errorf("records of pulled images: %w", err)
	}
	records, err := r.readRecords(r.pulled)
	if err != nil {
		return fmt.Errorf("records of pulled images: %w", err)
	}
	imported, err := r.readRecords(r.byHand)
	if err != nil {
		return fmt.Errorf("records of pulled images: %w", err)
	}
	for _, name := range intents {
		var i v1beta1.ImagePullIntent
		if err := r.pulling.read(name, kindIntent, &i); err != nil || fileName(i.Image) != name {
			r.damaged(r.pulling, name, err)
			i.Image = ""
		}
		r.intents[name] = &intent{image: i.Image, open: true}
	}
	r.records, r.imported = records, imported
	r.key, r.blind = key, false
	return nil
}

// readRecords reads all records of a directory, by file name. A record that can't be read is empty.
func (r *Records) readRecords(f files) (map[string]v1beta1.ImagePulledRecord, error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	out := make(map[string]v1beta1.ImagePulledRecord, len(names))
	for _, name := range names {
		var rec v1beta1.ImagePulledRecord
		if err := f.read(name, kindRecord, &rec); err != nil || fileName(rec.ImageRef) != name {
			r.damaged(f, name, err)
			rec = v1beta1.ImagePulledRecord{}
		}
		out[name] = rec
	}
	return out, nil
}

func (r *Records) damaged(f files, name string, err error) {
	if err == nil {
		err = errors.New("it is about another image than its name says")
	}
	r.cfg.Log.Error(err, "Can't read the record of a pulled image; it is only used again after a pull",
		"path", filepath.Join(f.dir, name))
}

// MayUse reports whether a pod with these credentials may use the image without a request to the registry. ref is the
// image's reference in the runtime. have returns the pod's credentials; it is called only if the result depends on
// them, and its error is returned.
func (r *Records) MayUse(image, ref string, have func() ([]credentials.Credential, error)) (bool, error) {
	r.mu.Lock()
	rec, known := r.records[fileName(ref)]
	_, begun := r.intents[fileName(image)]
	// An imported image is available to all pods, even if it was also pulled.
	verify := r.cfg.Policy.verifies(image, (r.blind || known || begun) && r.imported[fileName(ref)].ImageRef == "")
	open := openToAll(rec)
	r.mu.Unlock()
	switch {
	case !verify:
		r.cfg.Meter.Checked(PolicyAllowed)
		return true, nil
	case open:
		r.cfg.Meter.Checked(RecordFound)
		return true, nil
	}
	list, err := have()
	if err != nil {
		r.cfg.Meter.Checked(Failed)
		return false, err
	}
	if !r.compare(image, ref, list) {
		r.cfg.Meter.Checked(MustAuthenticate)
		return false, nil
	}
	r.cfg.Meter.Checked(RecordFound)
	return true, nil
}

// openToAll reports whether the image was pulled, under any of its names, without credentials or with the node's own.
// It is then public under its other names too.
func openToAll(rec v1beta1.ImagePulledRecord) bool {
	for _, known := range rec.CredentialMapping {
		if known.NodePodsAccessible {
			return true
		}
	}
	return false
}

func (r *Records) compare(image, ref string, list []credentials.Credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.records[fileName(ref)].CredentialMapping[withoutTag(image)]
	proofs := make([]proof, len(list))
	for i := range list {
		proofs[i] = proofOf(&list[i], r.key)
	}
	learned, ok := shown(known, proofs)
	if ok && !equal(learned, known) {
		// If the write fails, only this update of the record is lost: a later check may need a request to the registry.
		if err := r.writeRecord(image, ref, &learned); err != nil {
			r.cfg.Log.Error(err, "Can't record who may use an image", "image", image)
		}
	}
	return ok
}

// Intend records that the image is going to be pulled. After an error the image must not be pulled. Each successful
// call has to be followed by Pulled or NotPulled.
func (r *Records) Intend(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fileName(image)
	i := r.intents[name]
	if i == nil {
		if err := r.pulling.write(name,
			v1beta1.ImagePullIntent{TypeMeta: typeMeta(kindIntent), Image: image}); err != nil {
			return fmt.Errorf("can't record that image %q is being pulled, so it isn't: without that record, any pod "+
				"could use it: %w", image, err)
		}
		i = &intent{}
		r.intents[name] = i
	}
	i.image = image
	i.running++
	return nil
}

// Pulled records that the image was pulled with credential c, nil for none, and that its reference in the runtime is
// ref. After an error the image counts as pulled with unknown credentials.
func (r *Records) Pulled(image, ref string, c *credentials.Credential) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	learned := with(r.records[fileName(ref)].CredentialMapping[withoutTag(image)], proofOf(c, r.key))
	if err := r.writeRecord(image, ref, &learned); err != nil {
		r.end(image, false)
		return fmt.Errorf("can't record who may use image %q: %w", image, err)
	}
	if i := r.intents[fileName(image)]; i != nil {
		i.open = false
	}
	r.end(image, true)
	return nil
}

// NotPulled records that a pull failed. known is false if the runtime may have pulled the image in spite of the
// failure: then the image counts as pulled until ResolveIntents determines whether it was.
func (r *Records) NotPulled(image string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(image, known)
}

// end ends one pull of the image. known is the parameter of NotPulled, true after a success. The caller holds the
// lock.
func (r *Records) end(image string, known bool) {
	name := fileName(image)
	i := r.intents[name]
	if i == nil {
		return
	}
	i.running--
	i.open = i.open || !known
	if i.running == 0 && !i.open {
		r.drop(name, image)
	}
}

// drop removes an intent. The caller holds the lock.
func (r *Records) drop(name, image string) {
	if err := r.pulling.remove(name); err != nil {
		// The intent stays open, as it would after a restart, because its file is still there.
		r.cfg.Log.Error(err, "Can't remove the record of an image pull", "image", image)
		r.intents[name].open = true
		return
	}
	delete(r.intents, name)
}

// writeRecord writes the record of ref with the image's credentials; known is nil to leave these unchanged. The
// caller holds the lock.
func (r *Records) writeRecord(image, ref string, known *v1beta1.ImagePullCredentials) error {
	name := fileName(ref)
	rec := r.records[name]
	rec.TypeMeta, rec.ImageRef = typeMeta(kindRecord), ref
	rec.LastUpdatedTime = metav1.Now()
	if known != nil {
		rec.CredentialMapping = maps.Clone(rec.CredentialMapping)
		if rec.CredentialMapping == nil {
			rec.CredentialMapping = map[string]v1beta1.ImagePullCredentials{}
		}
		rec.CredentialMapping[withoutTag(image)] = *known
	}
	if err := r.pulled.write(name, rec); err != nil {
		return err
	}
	r.records[name] = rec
	return nil
}

// Prune removes the records of images that aren't in present: the runtime's image references, listed at the time since
// or later. It spares records that were written after that time.
func (r *Records) Prune(present []string, since time.Time) error {
	names := make(map[string]bool, len(present))
	for _, ref := range present {
		names[fileName(ref)] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, kept := range []struct {
		files
		records map[string]v1beta1.ImagePulledRecord
	}{{r.pulled, r.records}, {r.byHand, r.imported}} {
		for name, rec := range kept.records {
			if names[name] || !rec.LastUpdatedTime.Time.Before(since) {
				continue
			}
			if err := kept.remove(name); err != nil {
				errs = append(errs, fmt.Errorf("remove the record of image %s: %w", rec.ImageRef, err))
				continue
			}
			delete(kept.records, name)
		}
	}
	return errors.Join(errs...)
}

// Counts returns the numbers of intents and records on disk (kubelet_imagemanager_ondisk_pullintents,
// kubelet_imagemanager_ondisk_pulledrecords).
func (r *Records) Counts() (intents, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.intents), len(r.records)
}

func equal(a, b v1beta1.ImagePullCredentials) bool {
	return a.NodePodsAccessible == b.NodePodsAccessible && slices.Equal(a.KubernetesSecrets, b.KubernetesSecrets) &&
		slices.Equal(a.KubernetesServiceAccounts, b.KubernetesServiceAccounts)
}
