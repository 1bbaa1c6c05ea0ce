// Package access decides who may use an image that is on the node already: whoever
// has shown, by a pull that succeeded, that its registry lets them. What has been
// shown is kept on disk, in the kubelet's place and format.
// (https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification, KEP-2535)
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/kubelet/config/v1beta1"
)

// Policy says which images need to be shown credentials for. Make it with NewPolicy.
type Policy struct {
	name v1beta1.ImagePullCredentialsVerificationPolicy
	// images and prefixes are the allowlist, in full ("docker.io/library/nginx", "ghcr.io/org/").
	images, prefixes []string
}

// NewPolicy makes a policy of KubeletConfiguration's imagePullCredentialsVerificationPolicy
// (empty for the default) and preloadedImagesVerificationAllowlist: images without tag
// or digest, or a registry or path with "/*" at its end.
func NewPolicy(name v1beta1.ImagePullCredentialsVerificationPolicy, allowlist []string) (Policy, error) {
	p := Policy{name: name}
	switch name {
	case "":
		p.name = v1beta1.NeverVerifyPreloadedImages
	case v1beta1.NeverVerify, v1beta1.NeverVerifyPreloadedImages, v1beta1.NeverVerifyAllowlistedImages,
		v1beta1.AlwaysVerify:
	default:
		return Policy{}, fmt.Errorf("imagePullCredentialsVerificationPolicy: %q is none of %s, %s, %s, %s", name,
			v1beta1.NeverVerify, v1beta1.NeverVerifyPreloadedImages, v1beta1.NeverVerifyAllowlistedImages,
			v1beta1.AlwaysVerify)
	}
	for _, pattern := range allowlist {
		if err := p.allow(pattern); err != nil {
			return Policy{}, fmt.Errorf("preloadedImagesVerificationAllowlist: %w", err)
		}
	}
	return p, nil
}

func (p *Policy) allow(pattern string) error {
	stem, wild := strings.CutSuffix(pattern, "/*")
	if wild {
		// Any image below it tells how the stem reads in full.
		stem += "/x"
	}
	named, err := reference.ParseNormalizedNamed(stem)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no image: %w (use an image's name, or a registry or path with /* at its end)", pattern,
			err)
	case !reference.IsNameOnly(named):
		return fmt.Errorf("%q: leave out tag and digest", pattern)
	case wild:
		p.prefixes = append(p.prefixes, strings.TrimSuffix(named.Name(), "x"))
	default:
		p.images = append(p.images, named.Name())
	}
	return nil
}

// verifies reports whether credentials are to be shown for an image on the node; ours
// says that it was pulled by this node's agent, so that they once were.
func (p *Policy) verifies(image string, ours bool) bool {
	switch p.name {
	case v1beta1.NeverVerify:
		return false
	case v1beta1.AlwaysVerify:
		return true
	case v1beta1.NeverVerifyAllowlistedImages:
		return ours || !p.allows(image)
	default:
		return ours
	}
}

func (p *Policy) allows(image string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return false
	}
	return slices.Contains(p.images, named.Name()) ||
		slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(named.Name(), prefix) })
}

// withoutTag is the image as it was written, but for its tag and digest: what records
// name it by.
func withoutTag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}
