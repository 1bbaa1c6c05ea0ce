package access

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// ResolveIntents resolves the intents of pulls whose result is unknown, as after a restart of the agent. ref returns
// the runtime's reference for a name, or "" if there is no image. An image that is present is recorded as pulled with
// unknown credentials. Call it when the runtime has come up, and with each Prune.
func (r *Records) ResolveIntents(ctx context.Context,
	ref func(ctx context.Context, image string) (string, error)) error {
	var errs []error
	for name, image := range r.unresolved() {
		found, err := ref(ctx, image)
		if err == nil {
			err = r.resolve(name, image, found)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read how the pull of image %q ended: %w", image, err))
		}
	}
	return errors.Join(errs...)
}

// unresolved returns the images of intents without an active pull, by file name. An intent whose file can't be read
// has no image name: it stays until its image is pulled again.
func (r *Records) unresolved() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for name, i := range r.intents {
		if i.running == 0 && i.image != "" {
			out[name] = i.image
		}
	}
	return out
}

func (r *Records) resolve(name, image, ref string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.intents[name]; i == nil || i.running > 0 {
		return nil
	}
	if _, known := r.records[fileName(ref)]; ref != "" && !known {
		if err := r.writeRecord(image, ref, nil); err != nil {
			return err
		}
	}
	r.drop(name, image)
	return nil
}

// Imported records that a user imported an image on the node; ref is the runtime's reference to it. Until the image
// is removed, it counts as preloaded under all its names, even if it is also pulled.
func (r *Records) Imported(image, ref string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fileName(ref)
	rec := v1beta1.ImagePulledRecord{TypeMeta: typeMeta(kindRecord), ImageRef: ref, LastUpdatedTime: metav1.Now()}
	if err := r.byHand.write(name, rec); err != nil {
		return fmt.Errorf("record that image %s was imported: %w", ref, err)
	}
	r.imported[name] = rec
	if i := r.intents[fileName(image)]; i != nil && i.running == 0 {
		r.drop(fileName(image), image)
	}
	if _, known := r.records[name]; !known {
		return nil
	}
	if err := r.pulled.remove(name); err != nil {
		return fmt.Errorf("remove the record of image %s: %w", ref, err)
	}
	delete(r.records, name)
	return nil
}
