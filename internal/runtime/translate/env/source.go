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

// value is what a variable's source has for it.
type value struct {
	text string
	// ok is false if the source is optional and has nothing.
	ok bool
	// object is where it comes from, or should; zero for what comes from elsewhere.
	object pod.Object
}

// value is a variable's value by its literal text or its source. With an error, its
// object is the one that the error is about.
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

// key is the value of one key of an object.
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

// unavailable says that an object that has to be there isn't, or can't be read.
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

// keys is the data of a ConfigMap or a Secret: one of the two.
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

// fileKey is the value of one variable of an env file (KEP-3721): a file or a variable
// that is missing may be optional, a file that can't be read or understood is a problem.
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

// once remembers what looking something up came to, so that an environment is made of
// one version of each thing.
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
