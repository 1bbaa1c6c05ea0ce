package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/pod"
	podobject "github.com/deckhand-node/deckhand/internal/pod/object"
)

// value is the result of a variable's source.
type value struct {
	text string
	// ok is false if the source is optional and missing.
	ok bool
	// object is the source object; zero for other sources.
	object pod.Object
}

// value returns a variable's value from its literal text or its source. If there is an error, the result's object
// is the object that caused it.
func (r *resolver) value(ctx context.Context, e *v1.EnvVar) (value, error) {
	from := e.ValueFrom
	if from == nil {
		text, ok := pod.Expand(e.Value, r.vars.lookup)
		if !ok {
			return value{}, errTooLong
		}
		return value{text: text, ok: true}, nil
	}
	switch {
	case from.FieldRef != nil:
		text, err := field(r.pod, from.FieldRef.FieldPath, r.facts)
		return value{text: text, ok: true}, err
	case from.ResourceFieldRef != nil:
		text, err := pod.DownwardResource(r.pod, from.ResourceFieldRef, r.container.Name, r.facts.Allocatable)
		return value{text: text, ok: true}, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		return r.key(ctx, pod.Object{Kind: "ConfigMap", Namespace: r.pod.Namespace, Name: ref.Name}, ref.Key,
			isTrue(ref.Optional))
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		return r.key(ctx, pod.Object{Kind: "Secret", Namespace: r.pod.Namespace, Name: ref.Name}, ref.Key,
			isTrue(ref.Optional))
	case from.FileKeyRef != nil:
		return r.fileKey(from.FileKeyRef)
	}
	return value{}, errors.New("valueFrom names no source that this build knows")
}

// key returns the value of one key of an object.
func (r *resolver) key(ctx context.Context, object pod.Object, key string, optional bool) (value, error) {
	data, err := r.keysOf(ctx, object)
	switch {
	case optional && apierrors.IsNotFound(err):
		return value{}, nil
	case err != nil:
		return value{object: object}, unavailable(object, err)
	}
	text, ok := data.get(key)
	switch {
	case ok:
		return value{text: text, ok: true, object: object}, nil
	case optional:
		return value{}, nil
	case data.binary(key):
		return value{object: object},
			fmt.Errorf("couldn't find key %q in %v: it is in binaryData, which isn't for environments", key, object)
	}
	return value{object: object}, fmt.Errorf("couldn't find key %q in %v", key, object)
}

func (r *resolver) keysOf(ctx context.Context, object pod.Object) (keys, error) {
	return r.objects.get(object, func() (keys, error) {
		if object.Kind == "Secret" {
			s, err := r.from.Objects.Secret(ctx, object.Namespace, object.Name)
			return keys{secret: s}, err
		}
		m, err := r.from.Objects.ConfigMap(ctx, object.Namespace, object.Name)
		return keys{configMap: m}, err
	})
}

// unavailable returns the error for a required object that doesn't exist or can't be read.
func unavailable(object pod.Object, err error) error {
	if errors.Is(err, podobject.ErrRefused) {
		return err
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q not found in namespace %q: create it, or mark the reference as optional",
			strings.ToLower(object.Kind), object.Name, object.Namespace)
	}
	return fmt.Errorf("can't read %v: %w", object, err)
}

// keys is the data of either a ConfigMap or a Secret.
type keys struct {
	configMap *v1.ConfigMap
	secret    *v1.Secret
}

func (k keys) get(key string) (string, bool) {
	if k.secret != nil {
		text, ok := k.secret.Data[key]
		return string(text), ok
	}
	text, ok := k.configMap.Data[key]
	return text, ok
}

func (k keys) sorted() []string {
	if k.secret != nil {
		return slices.Sorted(maps.Keys(k.secret.Data))
	}
	return slices.Sorted(maps.Keys(k.configMap.Data))
}

func (k keys) binary(key string) bool {
	if k.configMap == nil {
		return false
	}
	_, ok := k.configMap.BinaryData[key]
	return ok
}

type fileName struct{ volume, path string }

// fileKey returns the value of one variable of an env file (KEP-3721). A missing file or variable may be optional;
// an unreadable or invalid file is an error.
func (r *resolver) fileKey(ref *v1.FileKeySelector) (value, error) {
	vars, err := r.files.get(fileName{ref.VolumeName, ref.Path}, func() (map[string]string, error) {
		return r.from.Files.EnvFile(ref.VolumeName, ref.Path)
	})
	optional := isTrue(ref.Optional)
	switch {
	case optional && errors.Is(err, fs.ErrNotExist):
		return value{}, nil
	case errors.Is(err, fs.ErrNotExist):
		return value{}, fmt.Errorf("env file %q not found in volume %s: an init container has to write it", ref.Path,
			ref.VolumeName)
	case err != nil:
		return value{}, fmt.Errorf("volume %s: %w", ref.VolumeName, err)
	}
	text, ok := vars[ref.Key]
	if !ok && !optional {
		return value{}, fmt.Errorf("couldn't find key %q in env file %q of volume %s", ref.Key, ref.Path,
			ref.VolumeName)
	}
	return value{text: text, ok: ok}, nil
}

// once caches the results of lookups, so that an environment uses one version of each object.
type once[K comparable, T any] struct{ known map[K]outcome[T] }

type outcome[T any] struct {
	result T
	err    error
}

func (o *once[K, T]) get(k K, look func() (T, error)) (T, error) {
	if known, ok := o.known[k]; ok {
		return known.result, known.err
	}
	result, err := look()
	if o.known == nil {
		o.known = make(map[K]outcome[T])
	}
	o.known[k] = outcome[T]{result, err}
	return result, err
}

func isTrue(b *bool) bool { return b != nil && *b }
