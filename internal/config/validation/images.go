package validation

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// ensureSecretPulled is the gate of policies for using images that are present.
const ensureSecretPulled = "KubeletEnsureSecretPulledImages"

// images checks the settings of image pulls and image garbage collection.
func (k *check) images() {
	atLeast(k, "registryPullQPS", *k.RegistryPullQPS, 0, "must be 0 (no limit) or more")
	atLeast(k, "registryBurst", k.RegistryBurst, 0, "must be 0 or more")
	if n := k.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			k.invalid(at("maxParallelImagePulls"), *n, "must be 1 or more; leave it out for no limit")
		case *n > 1 && *k.SerializeImagePulls:
			k.invalid(at("maxParallelImagePulls"), *n, "can't be more than 1 while serializeImagePulls is true")
		}
	}
	k.imageUsage()
	k.imageAges()
}

func (k *check) imageUsage() {
	highAt, lowAt := at("imageGCHighThresholdPercent"), at("imageGCLowThresholdPercent")
	high, low := *k.ImageGCHighThresholdPercent, *k.ImageGCLowThresholdPercent
	if high < 0 || high > 100 {
		k.invalid(highAt, high, "must be from 0 to 100; 100 turns the collection of unused images off")
	}
	switch {
	case low < 0 || low > 100:
		k.invalid(lowAt, low, "must be from 0 to 100")
	case low >= high:
		k.addBeside(highAt, field.Invalid(lowAt, low,
			fmt.Sprintf("must be less than imageGCHighThresholdPercent (%d); set this one too, if it isn't", high)))
	}
}

func (k *check) imageAges() {
	least, most := k.ImageMinimumGCAge.Duration, k.ImageMaximumGCAge.Duration
	if least < 0 {
		k.invalid(at("imageMinimumGCAge"), least.String(), "must be more than 0")
	}
	switch {
	case most < 0:
		k.invalid(at("imageMaximumGCAge"), most.String(), "must be 0 (no limit) or more")
	case most > 0 && most <= least:
		k.invalid(at("imageMaximumGCAge"), most.String(),
			fmt.Sprintf("must be more than imageMinimumGCAge (%s), or 0 for no limit", least))
	}
}

// imageUse checks the policy for using images that are present. While the gate is off, the default policy counts as
// unset.
func (k *check) imageUse() {
	path := at("imagePullCredentialsVerificationPolicy")
	policy := k.ImagePullCredentialsVerificationPolicy
	oneOf(k, path, policy, v1beta1.NeverVerify, v1beta1.NeverVerifyPreloadedImages,
		v1beta1.NeverVerifyAllowlistedImages, v1beta1.AlwaysVerify)
	if policy != v1beta1.NeverVerifyPreloadedImages {
		k.needsGate(path, ensureSecretPulled)
	}
	list := at("preloadedImagesVerificationAllowlist")
	if len(k.PreloadedImagesVerificationAllowlist) > 0 && policy != v1beta1.NeverVerifyAllowlistedImages {
		k.forbidden(list, fmt.Sprintf("counts only with imagePullCredentialsVerificationPolicy %s",
			v1beta1.NeverVerifyAllowlistedImages))
	}
	for i, image := range k.PreloadedImagesVerificationAllowlist {
		name := image
		if directory, ok := strings.CutSuffix(image, "/*"); ok && directory != "" {
			name = directory + "/x"
		}
		switch named, err := reference.ParseNormalizedNamed(name); {
		case err != nil:
			k.invalid(list.Index(i), image, `must be an image's name, or a path before "/*"`)
		case !reference.IsNameOnly(named):
			k.invalid(list.Index(i), image, "must have neither tag nor digest")
		}
	}
}
