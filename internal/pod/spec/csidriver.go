package spec

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// csiDriverDefaults fills in missing fields of a CSIDriver, in place. It is idempotent. An API server's default of
// attachRequired is true. Here it is false: there is no controller that attaches volumes of pods from manifests.
func csiDriverDefaults(s *storagev1.CSIDriverSpec) {
	for _, f := range []**bool{&s.AttachRequired, &s.PodInfoOnMount, &s.StorageCapacity, &s.RequiresRepublish,
		&s.SELinuxMount} {
		orPointer(f, false)
	}
	orPointer(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// minAllocatableSeconds is the shortest interval between updates of a driver's limit of volumes, in the API.
const minAllocatableSeconds int64 = 10

func csiDriver(d *storagev1.CSIDriver) field.ErrorList {
	s, at := &d.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if len(d.Name) > validation.MaxCSIDriverName {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), d.Name, validation.MaxCSIDriverName))
	}
	if s.AttachRequired != nil && *s.AttachRequired {
		errs = append(errs, field.Invalid(at.Child("attachRequired"), true, "there is no controller here that "+
			"attaches volumes, so pods would wait for ever: set attachRequired: false"))
	}
	for i, mode := range s.VolumeLifecycleModes {
		errs = append(errs, validation.OneOf(at.Child("volumeLifecycleModes").Index(i), mode,
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	errs = append(errs, validation.OptionalOneOf(at.Child("fsGroupPolicy"), s.FSGroupPolicy,
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)...)
	audiences := validation.Unique{}
	for i, r := range s.TokenRequests {
		request := at.Child("tokenRequests").Index(i)
		errs = append(errs, audiences.CheckKey(request.Child("audience"), r.Audience, r.Audience)...)
		if r.ExpirationSeconds != nil {
			errs = append(errs, validation.TokenSeconds(request.Child("expirationSeconds"), *r.ExpirationSeconds)...)
		}
	}
	if s.NodeAllocatableUpdatePeriodSeconds != nil {
		errs = append(errs, validation.AtLeast(at.Child("nodeAllocatableUpdatePeriodSeconds"),
			*s.NodeAllocatableUpdatePeriodSeconds, minAllocatableSeconds)...)
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *s.ServiceAccountTokenInSecrets,
			"must not be set without tokenRequests: there is no token to pass"))
	}
	return errs
}
