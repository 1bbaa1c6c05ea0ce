// Package access decides which pods may use an image that is already on the node: those whose credentials have pulled
// it successfully. It records these credentials on disk, at the kubelet's paths and in its format.
// (https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification, KEP-2535)
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/kubelet/config/v1beta1"
)

// Policy decides which images require credentials. Create it with NewPolicy.
type Policy struct {
	name v1beta1.ImagePullCredentialsVerificationPolicy
	// images and prefixes are the allowlist, fully qualified ("docker.io/library/nginx", "ghcr.io/org/").
	images, prefixes []string
}

// NewPolicy creates a policy from KubeletConfiguration's imagePullCredentialsVerificationPolicy (empty for the
// default) and preloadedImagesVerificationAllowlist: images without tag or digest, or a registry or path that ends in
// "/*".
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
		// An image name is appended to let the reference package normalize the stem.
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

// verifies reports whether a pod needs credentials for an image on the node. ours means that this node's agent pulled
// the image.
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

// withoutTag returns the image name as written, without tag and digest. It is the key of CredentialMapping in
// records.
func withoutTag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}
