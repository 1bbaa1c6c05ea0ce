package validation

import (
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits, in seconds, of the lifetimes of tokens (at most 2^32) and of certificates
// (PodCertificateProjection.maxExpirationSeconds) in the API.
const (
	minTokenSeconds       int64 = 10 * 60
	maxTokenSeconds       int64 = 1 << 32
	minCertificateSeconds int32 = 60 * 60
	maxCertificateSeconds int32 = 91 * 24 * 60 * 60
)

func projected(s *v1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := fileMode(at.Child("defaultMode"), s.DefaultMode)
	// All files of the volume must have different paths, even if different sources write them.
	files := Unique{}
	for i := range s.Sources {
		src, item := &s.Sources[i], at.Child("sources").Index(i)
		errs = append(errs, exactlyOne(*src, item, "projection")...)
		errs = append(errs, projection(src, item)...)
		for _, f := range filesOf(src, item) {
			errs = append(errs, files.Check(f.at, f.path)...)
		}
	}
	return errs
}

func projection(s *v1.VolumeProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Secret != nil {
		errs = append(errs, Required(at.Child("secret", "name"), s.Secret.Name, "must name a Secret")...)
		errs = append(errs, keys(s.Secret.Items, at.Child("secret", "items"))...)
	}
	if s.ConfigMap != nil {
		errs = append(errs, Required(at.Child("configMap", "name"), s.ConfigMap.Name, "must name a ConfigMap")...)
		errs = append(errs, keys(s.ConfigMap.Items, at.Child("configMap", "items"))...)
	}
	if s.DownwardAPI != nil {
		errs = append(errs, downwardFiles(s.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
	}
	if s.ServiceAccountToken != nil {
		errs = append(errs, token(s.ServiceAccountToken, at.Child("serviceAccountToken"))...)
	}
	if s.ClusterTrustBundle != nil {
		errs = append(errs, trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))...)
	}
	if s.PodCertificate != nil {
		errs = append(errs, certificate(s.PodCertificate, at.Child("podCertificate"))...)
	}
	return errs
}

func token(t *v1.ServiceAccountTokenProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.ExpirationSeconds == nil {
		errs = append(errs, field.Required(at.Child("expirationSeconds"),
			"must be the lifetime of the token in seconds"))
	} else {
		errs = append(errs, TokenSeconds(at.Child("expirationSeconds"), *t.ExpirationSeconds)...)
	}
	return append(errs, localFile(at.Child("path"), t.Path)...)
}

// TokenSeconds checks the lifetime of a service account's token, in seconds.
func TokenSeconds(at *field.Path, seconds int64) field.ErrorList {
	return Range(at, seconds, minTokenSeconds, maxTokenSeconds)
}

func trustBundle(b *v1.ClusterTrustBundleProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case b.Name == nil && b.SignerName == nil:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	case b.Name != nil && b.SignerName != nil:
		errs = append(errs, field.Invalid(at, "", "only one of name and signerName may be used"))
	case b.Name != nil:
		// A bundle's name may begin with the name of its signer: "example.com:name:foo".
		bundle := strings.ReplaceAll(*b.Name, ":", ".")
		errs = append(errs, Subdomain(at.Child("name"), bundle)...)
	default:
		errs = append(errs, signer(*b.SignerName, at.Child("signerName"))...)
	}
	if b.LabelSelector != nil && b.SignerName == nil {
		errs = append(errs, field.Invalid(at.Child("labelSelector"), "", "may only be used with signerName"))
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(b.LabelSelector,
		metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	return append(errs, localFile(at.Child("path"), b.Path)...)
}

// signer checks that the name has the form "domain/path" of a CertificateSigningRequest's signerName.
func signer(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must be a domain and a path, such as \"example.com/signer\"")}
	}
	return validation.IsDomainPrefixedPath(at, name)
}

func certificate(c *v1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := signer(c.SignerName, at.Child("signerName"))
	errs = append(errs, OneOf(at.Child("keyType"), c.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384",
		"ECDSAP521", "ED25519")...)
	if c.MaxExpirationSeconds != nil {
		errs = append(errs, Range(at.Child("maxExpirationSeconds"), *c.MaxExpirationSeconds, minCertificateSeconds,
			maxCertificateSeconds)...)
	}
	paths := certificateFiles(c, at)
	if len(paths) == 0 {
		errs = append(errs, field.Required(at,
			"specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	for _, f := range paths {
		errs = append(errs, localFile(f.at, f.path)...)
	}
	notes := at.Child("userAnnotations")
	errs = append(errs, apivalidation.ValidateAnnotations(c.UserAnnotations, notes)...)
	for _, key := range slices.Sorted(maps.Keys(c.UserAnnotations)) {
		if !strings.Contains(key, "/") {
			errs = append(errs, field.Invalid(notes.Key(key), key, "must have a domain in front (example.com/key)"))
		}
	}
	return errs
}

// file is a file that a projected volume contains.
type file struct {
	at   *field.Path
	path string
}

func certificateFiles(c *v1.PodCertificateProjection, at *field.Path) []file {
	var files []file
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {
			"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path != "" {
			files = append(files, file{at.Child(f.name), f.path})
		}
	}
	return files
}

// filesOf lists the files whose paths a projection names.
func filesOf(s *v1.VolumeProjection, at *field.Path) []file {
	var files []file
	add := func(at *field.Path, p string) {
		if p != "" {
			files = append(files, file{at, path.Clean(p)})
		}
	}
	items := func(list []v1.KeyToPath, at *field.Path) {
		for i := range list {
			add(at.Index(i).Child("path"), list[i].Path)
		}
	}
	if s.Secret != nil {
		items(s.Secret.Items, at.Child("secret", "items"))
	}
	if s.ConfigMap != nil {
		items(s.ConfigMap.Items, at.Child("configMap", "items"))
	}
	if s.DownwardAPI != nil {
		for i := range s.DownwardAPI.Items {
			add(at.Child("downwardAPI", "items").Index(i).Child("path"), s.DownwardAPI.Items[i].Path)
		}
	}
	if s.ServiceAccountToken != nil {
		add(at.Child("serviceAccountToken", "path"), s.ServiceAccountToken.Path)
	}
	if s.ClusterTrustBundle != nil {
		add(at.Child("clusterTrustBundle", "path"), s.ClusterTrustBundle.Path)
	}
	if s.PodCertificate != nil {
		for _, f := range certificateFiles(s.PodCertificate, at.Child("podCertificate")) {
			add(f.at, f.path)
		}
	}
	return files
}
