package credentials

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxConfig limits the size of a Docker configuration, in bytes. It is the maximum size of a Secret.
const maxConfig = 1 << 20

// DockerConfig is a parsed Docker configuration.
type DockerConfig struct {
	Entries []Entry
	// Problems describe the entries that can't be used, one line each, without secrets. Entries contains the others.
	Problems []string
}

func (c *DockerConfig) problem(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// ParseDockerConfig parses the format of ~/.docker/config.json and of secrets of type kubernetes.io/dockerconfigjson.
// It returns an error only if nothing can be used.
func ParseDockerConfig(data []byte, from Origin) (DockerConfig, error) {
	var file struct {
		Auths       json.RawMessage `json:"auths"`
		CredsStore  json.RawMessage `json:"credsStore"`
		CredHelpers json.RawMessage `json:"credHelpers"`
	}
	if err := whole(data, &file); err != nil {
		return DockerConfig{}, err
	}
	var config DockerConfig
	if given(file.CredsStore) || given(file.CredHelpers) {
		config.problem("credsStore and credHelpers aren't supported, only entries of auths; " +
			"to call a program for credentials, configure a credential provider (--image-credential-provider-config)")
	}
	if file.Auths == nil || string(file.Auths) == "null" {
		return config, nil
	}
	if err := config.read(file.Auths, from); err != nil {
		return DockerConfig{}, fmt.Errorf("auths: %w", err)
	}
	return config, nil
}

// ParseLegacyDockerConfig parses the format of ~/.dockercfg and of secrets of type kubernetes.io/dockercfg: the
// content of auths in the newer format.
func ParseLegacyDockerConfig(data []byte, from Origin) (DockerConfig, error) {
	var any json.RawMessage
	if err := whole(data, &any); err != nil {
		return DockerConfig{}, err
	}
	var config DockerConfig
	if err := config.read(any, from); err != nil {
		return DockerConfig{}, err
	}
	return config, nil
}

// whole decodes the only JSON value in data. It replaces the decoder's errors because they may quote the input.
func whole(data []byte, into any) error {
	if len(data) > maxConfig {
		return fmt.Errorf("it has %d bytes; at most %d are read", len(data), maxConfig)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	err := json.Unmarshal(data, into)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("it isn't JSON: line %d has an error",
			1+bytes.Count(data[:min(syntax.Offset, int64(len(data)))], []byte("\n")))
	default:
		return errors.New("it isn't a JSON object")
	}
}

// given reports whether a JSON value is present and not empty.
func given(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`, "{}":
		return false
	}
	return true
}

// read adds the entries of an object of registries. An invalid entry becomes a problem and doesn't affect the others.
func (c *DockerConfig) read(object json.RawMessage, from Origin) error {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("it isn't an object of registries")
	}
	seen := map[string]bool{}
	for n := 1; dec.More(); n++ {
		t, err := dec.Token()
		key, isKey := t.(string)
		var value json.RawMessage
		if err != nil || !isKey || dec.Decode(&value) != nil {
			return fmt.Errorf("entry %d can't be read", n)
		}
		if seen[key] {
			c.problem("entry %d has the key of one before it; both are tried", n)
		}
		seen[key] = true
		c.entry(n, key, value, from)
	}
	return nil
}

// entry adds the entry of one registry, the nth in the file. key is the registry's pattern.
func (c *DockerConfig) entry(n int, key string, value json.RawMessage, from Origin) {
	pattern, err := ParsePattern(key)
	if err != nil {
		c.problem("the key of entry %d can't be used: %v", n, err)
		return
	}
	credential, err := parseAuth(value)
	switch {
	case err != nil:
		c.problem("entry %q: %v", pattern, err)
	case credential == nil && key == "auths":
		c.problem("it is in the format of .docker/config.json, not of .dockercfg; a secret of it has to be of type " +
			"kubernetes.io/dockerconfigjson")
	case credential != nil:
		credential.ServerAddress, credential.Origin = key, from
		c.Entries = append(c.Entries, Entry{pattern, *credential})
	}
}

// parseAuth parses the value of a registry's entry. It returns nil without an error if the value has no credentials:
// Docker writes such entries if a credsStore has the password.
func parseAuth(raw json.RawMessage) (*Credential, error) {
	var in struct {
		Auth, Username, Password, IdentityToken, RegistryToken string
	}
	if err := json.Unmarshal(raw, &in); err != nil || bytes.Equal(raw, []byte("null")) {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return nil, fmt.Errorf("%s has to be a string", strings.ToLower(wrong.Field))
		}
		return nil, errors.New("it has to be an object with auth, or with username and password")
	}
	c := &Credential{Username: in.Username, Password: in.Password, IdentityToken: in.IdentityToken,
		RegistryToken: in.RegistryToken}
	if in.Auth != "" {
		var err error
		if c.Username, c.Password, err = decodeAuth(in.Auth); err != nil {
			return nil, err
		}
	}
	if c.IdentityToken != "" || c.RegistryToken != "" {
		// Beside a token, Docker writes a placeholder user name ("<token>"). Runtimes that receive a user name log in
		// with it instead of the token.
		c.Username, c.Password = "", ""
	}
	if c.sameSecret(Credential{}) {
		return nil, nil
	}
	return c, nil
}

// decodeAuth decodes the base64 of "user:password".
func decodeAuth(auth string) (user, password string, err error) {
	auth = strings.TrimSpace(auth)
	encoding := base64.StdEncoding
	if !strings.HasSuffix(auth, "=") {
		encoding = base64.RawStdEncoding // some tools omit the padding
	}
	text, err := encoding.DecodeString(auth)
	if err != nil {
		return "", "", errors.New("auth isn't base64")
	}
	user, password, ok := strings.Cut(string(text), ":")
	if !ok {
		return "", "", errors.New("auth isn't the base64 of user:password: there is no colon in it")
	}
	return user, strings.Trim(password, "\x00"), nil // Docker once padded passwords with NULs
}
