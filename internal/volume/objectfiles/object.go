package objectfiles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
)

// maxData is the largest size of the data of a ConfigMap or a Secret in bytes, without the keys
// (https://kubernetes.io/docs/concepts/configuration/configmap/#motivation, v1.MaxSecretSize).
const maxData = v1.MaxSecretSize

// reference is a volume's reference to a ConfigMap or a Secret.
type reference struct {
	kind, namespace, name string
	items                 []v1.KeyToPath
	optional              *bool
}

// describe returns the object's kind, name and namespace for messages.
func (r reference) describe() string {
	return fmt.Sprintf("%s %q (namespace %s)", r.kind, r.name, r.namespace)
}

func (r reference) isOptional() bool { return r.optional != nil && *r.optional }

func (r reference) awaits(format string, args ...any) error {
	return volume.Awaits(pod.Object{Kind: r.kind, Namespace: r.namespace, Name: r.name}, format, args...)
}

func configMapData(ctx context.Context, from object.View, r reference) (map[string][]byte, error) {
	m, err := from.ConfigMap(ctx, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for key, text := range m.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, m.BinaryData)
	return data, nil
}

func secretData(ctx context.Context, from object.View, r reference) (map[string][]byte, error) {
	s, err := from.Secret(ctx, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	return s.Data, nil
}

// files returns the volume's files for the object. data and err are the result of reading the object.
func (r reference) files(data map[string][]byte, err error, mode *int32) (map[string]atomicwriter.File, error) {
	switch {
	case apierrors.IsNotFound(err) && r.isOptional():
		return map[string]atomicwriter.File{}, nil
	case errors.Is(err, object.ErrRefused):
		return nil, r.awaits("%w", err)
	case apierrors.IsNotFound(err):
		return nil, r.awaits("%s isn't there: create it, or mark the volume's source as optional", r.describe())
	case object.IsUnknown(err):
		// The volume waits for an optional object as well: the object may exist.
		return nil, r.awaits("%w", err)
	case err != nil:
		return nil, fmt.Errorf("can't read %s: %w", r.describe(), err)
	}
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > maxData {
		return nil, r.awaits("%s has %d bytes of data, and may have no more than 1 MiB (%d bytes): split it",
			r.describe(), size, maxData)
	}
	if len(r.items) == 0 {
		return r.all(data, mode)
	}
	return r.chosen(data, mode)
}

func (r reference) all(data map[string][]byte, mode *int32) (map[string]atomicwriter.File, error) {
	files := make(map[string]atomicwriter.File, len(data))
	for key, value := range data {
		if err := atomicwriter.Check(key); err != nil {
			return nil, r.awaits("%s has the key %q, which can't be a file's name (%w)", r.describe(), key, err)
		}
		files[key] = atomicwriter.File{Data: value, Mode: permissions(nil, mode)}
	}
	return files, nil
}

func (r reference) chosen(data map[string][]byte, mode *int32) (map[string]atomicwriter.File, error) {
	files := make(map[string]atomicwriter.File, len(r.items))
	var missing []string
	for i := range r.items {
		item := &r.items[i]
		value, ok := data[item.Key]
		if !ok {
			// The path of a missing key is validated too: it is wrong whether the key exists or not.
			missing = append(missing, item.Key)
		}
		if err := add(files, item.Path,
			atomicwriter.File{Data: value, Mode: permissions(item.Mode, mode)}); err != nil {
			return nil, fmt.Errorf("key %q of %s: %w", item.Key, r.describe(), err)
		}
		if !ok {
			delete(files, path.Clean(item.Path))
		}
	}
	if len(missing) > 0 && !r.isOptional() {
		return nil, r.awaits("%s has no key %s (%s): add it, or mark the volume's source as optional", r.describe(),
			listed(missing), present(data))
	}
	return files, nil
}

// add adds a file at a path from a pod's spec. The path may contain a needless "." or "/".
func add(files map[string]atomicwriter.File, at string, f atomicwriter.File) error {
	// The meaning of "a/../b" is ambiguous: ".." is refused, not resolved.
	if slices.Contains(strings.Split(at, "/"), "..") {
		return atomicwriter.Check(at)
	}
	short := at
	if at != "" && !strings.HasPrefix(at, "/") {
		short = path.Clean(at)
	}
	if err := atomicwriter.Check(short); err != nil {
		return err
	}
	if _, twice := files[short]; twice {
		return fmt.Errorf("path %q is there twice: give each file a path of its own", short)
	}
	files[short] = f
	return nil
}

// permissions returns a file's mode: the item's mode if it is set, else the volume's defaultMode, else 0644.
func permissions(own, byDefault *int32) uint32 {
	switch {
	case own != nil:
		return uint32(*own) & 0o777
	case byDefault != nil:
		return uint32(*byDefault) & 0o777
	}
	return uint32(v1.ConfigMapVolumeSourceDefaultMode)
}

// present lists the existing keys for a message.
func present(data map[string][]byte) string {
	if len(data) == 0 {
		return "it has none"
	}
	return "it has " + listed(slices.Sorted(maps.Keys(data)))
}

// listed formats at most ten names for a message.
func listed(names []string) string {
	const enough = 10
	quoted := make([]string, 0, enough)
	for _, name := range names[:min(len(names), enough)] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - enough; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
