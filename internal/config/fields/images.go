package fields

const gateSecretImages = "KubeletEnsureSecretPulledImages"

func images() []Field {
	return []Field{
		{Path: "serializeImagePulls", Package: "image/pull", Live: true,
			Default: "true; false if maxParallelImagePulls is more than 1",
			Doc:     "Pull one image after the other."},
		{Path: "maxParallelImagePulls", Package: "image/pull", Live: true,
			Default: "no limit, if serializeImagePulls is false",
			Doc: "How many images may be pulled at the same time, at least 1. More than 1 needs " +
				"serializeImagePulls: false."},
		{Path: "registryPullQPS", Package: "image/pull", Live: true,
			Doc: "How many pulls may begin in a second, on average; 0 for any number."},
		{Path: "registryBurst", Package: "image/pull", Live: true,
			Doc: "How many pulls may begin at once if there were none for a while. It counts only with registryPullQPS."},
		{Path: "imagePullCredentialsVerificationPolicy", Package: "image/access", Gate: gateSecretImages,
			Doc: "For which images that are present a pod still has to show credentials that open them: NeverVerify " +
				"(none), NeverVerifyPreloadedImages (those that this agent has pulled), NeverVerifyAllowlistedImages " +
				"(these, and others that aren't listed) or AlwaysVerify (all)."},
		{Path: "preloadedImagesVerificationAllowlist", Package: "image/access", Gate: gateSecretImages, Default: "none",
			Doc: `Images that any pod may use if this agent hasn't pulled them, with the policy NeverVerifyAllowlistedImages only: names without tag and digest, or all below a path with "/*" at the end.`},
		{Path: "imageMinimumGCAge", Package: "image/gc", Live: true,
			Doc: "How long an image is kept at least after it was last used."},
		{Path: "imageMaximumGCAge", Package: "image/gc", Live: true,
			Doc: "After which time an unused image is removed even if the disk isn't full; 0s for never. It must be " +
				"more than imageMinimumGCAge."},
		{Path: "imageGCHighThresholdPercent", Package: "image/gc", Live: true,
			Doc: "How full the images' disk has to be before unused images are removed, in percent from 0 to 100; " +
				"100 for never."},
		{Path: "imageGCLowThresholdPercent", Package: "image/gc", Live: true,
			Doc: "How far images are removed then: until the disk is this full, in percent. It must be less than " +
				"imageGCHighThresholdPercent."},
	}
}
