package credentials

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Image is an image's name without tag and digest, in full: that of "busybox" is
// "docker.io/library/busybox".
type Image struct {
	name, registry string
	place          place
}

// ParseImage reads an image reference as a container spec has it.
func ParseImage(ref string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return Image{}, fmt.Errorf("%q isn't the name of an image: %w", ref, err)
	}
	registry := strings.ToLower(reference.Domain(named))
	host, port, err := splitHost(registry)
	if err != nil {
		return Image{}, fmt.Errorf("%q isn't the name of an image: its registry: %w", ref, err)
	}
	return Image{
		name:     registry + "/" + reference.Path(named),
		registry: registry,
		place:    place{host: host, port: port, path: "/" + reference.Path(named)},
	}, nil
}

// Name is the registry with its port, if the reference has one, and the path.
func (i Image) Name() string { return i.name }

// Registry is the registry with its port, if the reference has one.
func (i Image) Registry() string { return i.registry }
