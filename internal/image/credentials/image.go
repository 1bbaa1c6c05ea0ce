package credentials

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Image is a fully qualified image name without tag and digest: "docker.io/library/busybox" for "busybox".
type Image struct {
	name, registry string
	place          place
}

// ParseImage parses an image reference of a container spec.
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

// Name returns the registry, with its port if the reference has one, and the path.
func (i Image) Name() string { return i.name }

// Registry returns the registry, with its port if the reference has one.
func (i Image) Registry() string { return i.registry }
