package spec

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// redacted replaces a Secret's value in errors.
const redacted = "<secret contents redacted>"

// secretDefaults sets the default type of a Secret. It moves the plain text values from stringData, which is
// write-only, to data, where each value replaces a value with the same key.
func secretDefaults(s *v1.Secret) {
	orDefault(&s.Type, v1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func secret(s *v1.Secret) field.ErrorList {
	at := field.NewPath("data")
	var errs field.ErrorList
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, validation.ConfigKey(at.Key(key), key)...)
		size += len(s.Data[key])
	}
	errs = append(errs, atMost(size, at)...)
	return append(errs, secretType(s, at)...)
}

// secretType checks that a Secret has the data that its type requires. Types that the API doesn't define require
// nothing.
func secretType(s *v1.Secret, at *field.Path) field.ErrorList {
	switch s.Type {
	case v1.SecretTypeServiceAccountToken:
		account := field.NewPath("metadata", "annotations").Key(v1.ServiceAccountNameKey)
		return validation.Required(account, s.Annotations[v1.ServiceAccountNameKey],
			"must name a ServiceAccount, as the Secret's type is "+string(s.Type))
	case v1.SecretTypeDockercfg:
		return dockerConfig(s, v1.DockerConfigKey, at)
	case v1.SecretTypeDockerConfigJson:
		return dockerConfig(s, v1.DockerConfigJsonKey, at)
	case v1.SecretTypeBasicAuth:
		_, user := s.Data[v1.BasicAuthUsernameKey]
		_, password := s.Data[v1.BasicAuthPasswordKey]
		if !user && !password {
			return field.ErrorList{field.Required(at,
				"must have the key "+v1.BasicAuthUsernameKey+" or "+v1.BasicAuthPasswordKey+needs(s))}
		}
	case v1.SecretTypeSSHAuth:
		if len(s.Data[v1.SSHAuthPrivateKey]) == 0 {
			return missing(s, v1.SSHAuthPrivateKey, at)
		}
	case v1.SecretTypeTLS:
		var errs field.ErrorList
		for _, key := range []string{v1.TLSCertKey, v1.TLSPrivateKeyKey} {
			if _, there := s.Data[key]; !there {
				errs = append(errs, missing(s, key, at)...)
			}
		}
		return errs
	}
	return nil
}

func needs(s *v1.Secret) string { return ", as the Secret's type is " + string(s.Type) }

func missing(s *v1.Secret, key string, at *field.Path) field.ErrorList {
	return field.ErrorList{field.Required(at.Key(key), "must be set"+needs(s))}
}

func dockerConfig(s *v1.Secret, key string, at *field.Path) field.ErrorList {
	data, there := s.Data[key]
	if !there {
		return missing(s, key, at)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil { // the decoder's error isn't used: it may quote the text
		return field.ErrorList{field.Invalid(at.Key(key), redacted, "must be a JSON object"+needs(s))}
	}
	return nil
}
