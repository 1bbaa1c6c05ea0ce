package credentials

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// ParseSecret parses a pull secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg. It returns an
// error if nothing in it can be used. Errors never contain secrets.
func ParseSecret(s *v1.Secret) (DockerConfig, error) {
	var key string
	parse := ParseDockerConfig
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		key = v1.DockerConfigJsonKey
	case v1.SecretTypeDockercfg:
		key, parse = v1.DockerConfigKey, ParseLegacyDockerConfig
	default:
		return DockerConfig{}, fmt.Errorf("it is of type %q, a pull secret has to be of type %s or %s", s.Type,
			v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
	}
	data, ok := s.Data[key]
	if !ok {
		return DockerConfig{}, fmt.Errorf("it has no %s, which a secret of type %s has to have", key, s.Type)
	}
	config, err := parse(data, Origin{Kind: FromSecret, Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)})
	if err != nil {
		return DockerConfig{}, fmt.Errorf("its %s: %w", key, err)
	}
	return config, nil
}
