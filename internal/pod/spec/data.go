package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// maxData is the maximum total size in bytes of all values of a ConfigMap or Secret (for Secrets, see
// v1.MaxSecretSize).
const maxData = v1.MaxSecretSize

func configMap(c *v1.ConfigMap) field.ErrorList {
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	var errs field.ErrorList
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		errs = append(errs, validation.ConfigKey(data.Key(key), key)...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key,
				"is also a key of binaryData; a key may be in one of them only"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, validation.ConfigKey(binary.Key(key), key)...)
		size += len(c.BinaryData[key])
	}
	return append(errs, atMost(size, data)...)
}

// atMost returns an error if the size in bytes is larger than maxData.
func atMost(size int, at *field.Path) field.ErrorList {
	if size <= maxData {
		return nil
	}
	err := field.TooLong(at, "", maxData)
	err.Detail = fmt.Sprintf("all values together may have at most %d bytes, and have %d", maxData, size)
	return field.ErrorList{err}
}

const frozen = "the object is immutable: this edit isn't applied; to change it, remove the object from its manifest, " +
	"and then add it again"

func frozenConfigMap(old, new *v1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	errs := thawed(new.Immutable)
	if !maps.Equal(old.Data, new.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
	}
	if !maps.EqualFunc(old.BinaryData, new.BinaryData, bytes.Equal) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), frozen))
	}
	return errs
}

func frozenSecret(old, new *v1.Secret) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	errs := thawed(new.Immutable)
	if !maps.EqualFunc(old.Data, new.Data, bytes.Equal) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
	}
	if old.Type != new.Type {
		errs = append(errs, field.Forbidden(field.NewPath("type"), frozen))
	}
	return errs
}

func thawed(immutable *bool) field.ErrorList {
	if immutable != nil && *immutable {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), frozen)}
}
