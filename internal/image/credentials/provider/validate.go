package provider

import (
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1 "k8s.io/kubelet/config/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

const pluginGroup = "credentialprovider.kubelet.k8s.io"

// PluginVersions are the versions of the plugin protocol. Only the first supports service account tokens.
func PluginVersions() []string {
	return []string{pluginGroup + "/v1", pluginGroup + "/v1beta1", pluginGroup + "/v1alpha1"}
}

// validate checks one provider by the rules in the comments of kubeletv1.CredentialProvider. It also sets the
// provider's Match.
func validate(configVersion, at string, p *Provider) field.ErrorList {
	path := field.NewPath(at)
	var errs field.ErrorList
	switch {
	case p.Name == "":
		errs = append(errs, field.Required(path.Child("name"),
			"it is the name of a program in --image-credential-provider-bin-dir"))
	case !validName(p.Name):
		errs = append(errs, field.Invalid(path.Child("name"), p.Name,
			"it must be the name of a program: no directory, no blanks, neither . nor .."))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(path.Child("matchImages"), "it says for which images the provider is asked"))
	}
	for i, text := range p.MatchImages {
		pattern, err := credentials.ParsePattern(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("matchImages").Index(i), text, err.Error()))
		}
		p.Match = append(p.Match, pattern)
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		errs = append(errs, field.Required(path.Child("defaultCacheDuration"),
			"it says how long credentials are kept; 0s for not at all"))
	case d.Duration < 0:
		errs = append(errs, field.Invalid(path.Child("defaultCacheDuration"), d.Duration.String(),
			"it must not be negative"))
	}
	switch {
	case p.APIVersion == "":
		errs = append(errs, field.Required(path.Child("apiVersion"),
			"it must be one of "+strings.Join(PluginVersions(), ", ")))
	case !slices.Contains(PluginVersions(), p.APIVersion):
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), p.APIVersion, PluginVersions()))
	}
	errs = append(errs, validateProcess(path, p)...)
	if p.TokenAttributes != nil {
		if configVersion != versions()[0] {
			errs = append(errs, field.Forbidden(path.Child("tokenAttributes"),
				"it needs apiVersion "+versions()[0]+" of the configuration"))
		}
		if p.APIVersion != PluginVersions()[0] {
			errs = append(errs, field.Forbidden(path.Child("tokenAttributes"),
				"it needs apiVersion "+PluginVersions()[0]+" of the provider"))
		}
		errs = append(errs, validateToken(path.Child("tokenAttributes"), p.TokenAttributes)...)
	}
	return errs
}

// validName reports whether the name is a plain file name.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f })
}

func validateProcess(path *field.Path, p *Provider) field.ErrorList {
	var errs field.ErrorList
	for i, arg := range p.Args {
		if strings.ContainsRune(arg, 0) {
			// The value is omitted because it may be secret.
			errs = append(errs, field.Invalid(path.Child("args").Index(i), "",
				"no argument of a program can have a NUL"))
		}
	}
	for i, env := range p.Env {
		at := path.Child("env").Index(i)
		if env.Name == "" || strings.ContainsAny(env.Name, "=\x00") {
			errs = append(errs, field.Invalid(at.Child("name"), env.Name,
				"the name of a variable must not be empty, and has neither = nor NUL"))
		}
		if strings.ContainsRune(env.Value, 0) {
			errs = append(errs, field.Invalid(at.Child("value"), "", "no variable can have a NUL")) // may be secret
		}
	}
	return errs
}

// validateToken checks a provider's tokenAttributes (KEP-4412).
func validateToken(path *field.Path, t *kubeletv1.ServiceAccountTokenAttributes) field.ErrorList {
	var errs field.ErrorList
	if t.ServiceAccountTokenAudience == "" {
		errs = append(errs, field.Required(path.Child("serviceAccountTokenAudience"), "it is the audience of the "+
			"token"))
	}
	types := []kubeletv1.ServiceAccountTokenCacheType{kubeletv1.TokenServiceAccountTokenCacheType,
		kubeletv1.ServiceAccountServiceAccountTokenCacheType}
	switch {
	case t.CacheType == "":
		errs = append(errs, field.Required(path.Child("cacheType"), "it must be Token or ServiceAccount"))
	case !slices.Contains(types, t.CacheType):
		errs = append(errs, field.NotSupported(path.Child("cacheType"), t.CacheType, types))
	}
	required := path.Child("requiredServiceAccountAnnotationKeys")
	switch {
	case t.RequireServiceAccount == nil:
		errs = append(errs, field.Required(path.Child("requireServiceAccount"),
			"it says whether pods without a service account are left out"))
	case !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0:
		errs = append(errs, field.Forbidden(required, "it needs requireServiceAccount: true"))
	}
	errs = append(errs, validateKeys(required, t.RequiredServiceAccountAnnotationKeys)...)
	optional := path.Child("optionalServiceAccountAnnotationKeys")
	errs = append(errs, validateKeys(optional, t.OptionalServiceAccountAnnotationKeys)...)
	for i, key := range t.OptionalServiceAccountAnnotationKeys {
		if slices.Contains(t.RequiredServiceAccountAnnotationKeys, key) {
			errs = append(errs, field.Invalid(optional.Index(i), key,
				"it is also in requiredServiceAccountAnnotationKeys; a key is either required or optional"))
		}
	}
	return errs
}

func validateKeys(path *field.Path, keys []string) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		for _, text := range utilvalidation.IsQualifiedName(strings.ToLower(key)) {
			errs = append(errs, field.Invalid(path.Index(i), key, text))
		}
		if slices.Index(keys, key) < i {
			errs = append(errs, field.Duplicate(path.Index(i), key))
		}
	}
	return errs
}
