package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// said is a credential with its secrets shown, for comparing.
func said(c Credential) string {
	return fmt.Sprintf("%s user=%s password=%s identity=%s registry=%s", c.ServerAddress, c.Username, c.Password, c.IdentityToken, c.RegistryToken)
}

func read(config DockerConfig, err error) []string {
	var lines []string
	for _, e := range config.Entries {
		lines = append(lines, said(e.Credential))
	}
	for _, p := range config.Problems {
		lines = append(lines, "problem: "+p)
	}
	if err != nil {
		lines = append(lines, "error: "+err.Error())
	}
	return lines
}

func TestParseDockerConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"auth", `{"auths": {"https://index.docker.io/v1/": {"auth": "` + b64("me:geheim:2") + `", "email": "x@y"}}, "HttpHeaders": {}}`,
			[]string{"https://index.docker.io/v1/ user=me password=geheim:2 identity= registry="}},
		{"auth without padding, between blanks", `{"auths": {"a.io": {"auth": " ` + strings.TrimRight(b64("me:pass"), "=") + "\\n" + `"}}}`,
			[]string{"a.io user=me password=pass identity= registry="}},
		{"auth padded by docker", `{"auths": {"a.io": {"auth": "` + b64("me:pass\x00\x00") + `"}}}`,
			[]string{"a.io user=me password=pass identity= registry="}},
		{"user and password, and auth counts more", `{"auths": {"a.io": {"username": "u", "password": "p"}, "b.io": {"username": "u", "password": "p", "auth": "` + b64("v:q") + `"}}}`,
			[]string{"a.io user=u password=p identity= registry=", "b.io user=v password=q identity= registry="}},
		{"names in other case, as Go programs write and read them", `{"Auths": {"a.io": {"UserName": "u", "Password": "p"}}}`,
			[]string{"a.io user=u password=p identity= registry="}},
		{"tokens replace the name that stands for nobody", `{"auths": {"a.io": {"auth": "` + b64("<token>:") + `", "identitytoken": "id"}, "b.io": {"registrytoken": "reg"}}}`,
			[]string{"a.io user= password= identity=id registry=", "b.io user= password= identity= registry=reg"}},
		{"an empty password", `{"auths": {"a.io": {"auth": "` + b64("me:") + `"}}}`,
			[]string{"a.io user=me password= identity= registry="}},
		{"nothing", `{}`, nil},
		{"no auths", `{"auths": null, "credsStore": "", "credHelpers": {}}`, nil},
		{"a credsStore, with the entries docker leaves behind", `{"auths": {"a.io": {}}, "credsStore": "desktop"}`,
			[]string{"problem: credsStore and credHelpers aren't supported, only entries of auths; to call a program for credentials, configure a credential provider (--image-credential-provider-config)"}},
		{"bad entries among good ones", `{"auths": {"a.io": {"auth": "geheim"}, "b.io": {"auth": "` + b64("geheim") + `"}, "c.io": "geheim", "d.io": null, "e.io": {"password": 12345},
			"f.io": {"username": "u", "password": "p"}, "geheim@g.io": {"auth": "x"}, "f.io": {"username": "v"}}}`,
			[]string{"f.io user=u password=p identity= registry=", "f.io user=v password= identity= registry=",
				`problem: entry "a.io": auth isn't the base64 of user:password: there is no colon in it`,
				`problem: entry "b.io": auth isn't the base64 of user:password: there is no colon in it`,
				`problem: entry "c.io": it has to be an object with auth, or with username and password`,
				`problem: entry "d.io": it has to be an object with auth, or with username and password`,
				`problem: entry "e.io": password has to be a string`,
				`problem: the key of entry 7 can't be used: its host isn't a name of letters, digits, - and _ between dots, with * as a glob`,
				`problem: entry 8 has the key of one before it; both are tried`}},
		{"not base64", `{"auths": {"a.io": {"auth": "!geheim!"}}}`, []string{`problem: entry "a.io": auth isn't base64`}},
		{"empty", "  \n", []string{"error: it is empty"}},
		{"no JSON", "{\n\"auths\":\n geheim}", []string{"error: it isn't JSON: line 3 has an error"}},
		{"cut off", `{"auths": {"a.io": {"auth": "geheim`, []string{"error: it isn't JSON: line 1 has an error"}},
		{"more than one", `{} {}`, []string{"error: it isn't JSON: line 1 has an error"}},
		{"a list", `["geheim"]`, []string{"error: it isn't a JSON object"}},
		{"auths is a list", `{"auths": ["geheim"]}`, []string{"error: auths: it isn't an object of registries"}},
		{"too big", strings.Repeat(" ", maxConfig+1), []string{"error: it has 1048577 bytes; at most 1048576 are read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(ParseDockerConfig([]byte(c.text), Origin{}))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseLegacyDockerConfig(t *testing.T) {
	got := read(ParseLegacyDockerConfig([]byte(`{"https://a.io/v1/": {"auth": "`+b64("me:pass")+`", "email": "x"}}`), Origin{}))
	if diff := cmp.Diff([]string{"https://a.io/v1/ user=me password=pass identity= registry="}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = read(ParseLegacyDockerConfig([]byte(`{"auths": {"a.io": {"auth": "`+b64("me:pass")+`"}}}`), Origin{}))
	if len(got) != 1 || !strings.Contains(got[0], "kubernetes.io/dockerconfigjson") {
		t.Errorf("the newer format in place of the legacy one: %q", got)
	}
	for _, text := range []string{"", "null", "[]", `"geheim"`} {
		if got := read(ParseLegacyDockerConfig([]byte(text), Origin{})); len(got) != 1 || !strings.HasPrefix(got[0], "error: ") || strings.Contains(got[0], "geheim") {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestParseSecret(t *testing.T) {
	auths := []byte(`{"auths": {"a.io": {"username": "u", "password": "p"}}}`)
	legacy := []byte(`{"a.io": {"username": "u", "password": "p"}}`)
	for _, c := range []struct {
		kind v1.SecretType
		data map[string][]byte
		want string
	}{
		{v1.SecretTypeDockerConfigJson, map[string][]byte{".dockerconfigjson": auths}, "a.io user=u password=p identity= registry="},
		{v1.SecretTypeDockercfg, map[string][]byte{".dockercfg": legacy}, "a.io user=u password=p identity= registry="},
		{v1.SecretTypeOpaque, map[string][]byte{".dockerconfigjson": auths}, `error: it is of type "Opaque", a pull secret has to be of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg`},
		{v1.SecretTypeDockerConfigJson, map[string][]byte{".dockercfg": auths}, "error: it has no .dockerconfigjson, which a secret of type kubernetes.io/dockerconfigjson has to have"},
		{v1.SecretTypeDockerConfigJson, map[string][]byte{".dockerconfigjson": []byte("geheim")}, "error: its .dockerconfigjson: it isn't JSON: line 1 has an error"},
	} {
		s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull", UID: "u1"}, Type: c.kind, Data: c.data}
		config, err := ParseSecret(s)
		if got := strings.Join(read(config, err), "\n"); got != c.want {
			t.Errorf("%s with %v:\n%s, want\n%s", c.kind, c.data, got, c.want)
		}
		for _, e := range config.Entries {
			if want := (Origin{Kind: FromSecret, Namespace: "ns", Name: "pull", UID: "u1"}); e.Credential.Origin != want {
				t.Errorf("it comes from %v, want %v", e.Credential.Origin, want)
			}
		}
	}
}

// Whatever is wrong with a pull secret, what is said of it holds nothing of its credentials: here each byte of one is wrong in turn.
func TestNothingSaidOfAPullSecretIsSecret(t *testing.T) {
	auth := b64("geheim-user:geheim-password")
	entry := `{"a.io": {"auth": "` + auth + `"}, "b.io": {"username": "geheim-user", "password": "geheim-password"}, "c.io": {"identitytoken": "geheim-id", "registrytoken": "geheim-reg"}}`
	for kind, text := range map[v1.SecretType]string{v1.SecretTypeDockercfg: entry, v1.SecretTypeDockerConfigJson: `{"auths": ` + entry + `}`} {
		key := map[v1.SecretType]string{v1.SecretTypeDockercfg: ".dockercfg", v1.SecretTypeDockerConfigJson: ".dockerconfigjson"}[kind]
		refused := 0
		for i := range text {
			for _, wrong := range []string{text[:i], text[:i] + text[i+1:], text[:i] + text[i:i+1] + text[i:], text[:i] + "!" + text[i+1:], text[:i] + "\xff" + text[i+1:], text[:i] + "7" + text[i+1:], text[:i] + `"` + text[i+1:]} {
				config, err := ParseSecret(&v1.Secret{Type: kind, Data: map[string][]byte{key: []byte(wrong)}})
				said := strings.Join(config.Problems, "\n")
				if err != nil {
					said += err.Error()
				}
				if said != "" {
					refused++
				}
				if strings.Contains(said, "geheim") || strings.Contains(said, auth[2:10]) || strings.Contains(said, auth[len(auth)-10:len(auth)-2]) {
					t.Fatalf("%s: %s", wrong, said)
				}
			}
		}
		if refused < len(text) {
			t.Errorf("%d things were wrong with secrets of type %s", refused, kind)
		}
	}
}

func TestCredentialDoesNotShowItself(t *testing.T) {
	c := Credential{Username: "geheim-u", Password: "geheim-p", IdentityToken: "geheim-i", RegistryToken: "geheim-r", Origin: Origin{Kind: FromSecret, Namespace: "ns", Name: "pull"}}
	text, err := json.Marshal(map[string]any{"c": c, "p": &c})
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %q %v %v %s", c, c, c, c, c, &c, []Entry{{Credential: c}}, text)
	if strings.Contains(shown, "geheim") || strings.Count(shown, "secret ns/pull") != 9 {
		t.Errorf("it shows as %s", shown)
	}
}

func TestHash(t *testing.T) {
	base := Credential{Username: "u", Password: "p"}
	elsewhere := base
	elsewhere.ServerAddress, elsewhere.Origin = "a.io", Origin{Kind: FromSecret, Name: "x"}
	key := []byte("key")
	if base.Hash(key) != elsewhere.Hash(key) {
		t.Error("the same secret from elsewhere has another hash")
	}
	if len(base.Hash(key)) != 64 || base.Hash(key) == base.Hash([]byte("other")) {
		t.Error("the key doesn't count")
	}
	hashes := map[string]Credential{}
	for _, c := range []Credential{{}, base, {Username: "up"}, {Password: "up"}, {Username: "u", IdentityToken: "p"}, {Username: "u", RegistryToken: "p"}, {Username: "p", Password: "u"}} {
		if o, ok := hashes[c.Hash(key)]; ok {
			t.Errorf("%s and %s have the same hash", said(c), said(o))
		}
		hashes[c.Hash(key)] = c
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths": {"https://index.docker.io/v1/": {"auth": "bWU6Z2VoZWlt"}, "x": {"username": "u", "identitytoken": "t"}}, "credsStore": "x"}`))
	f.Add([]byte(`{"a.io": {"auth": "bWU6Z2VoZWlt"}, "a.io": null, "b": 1}`))
	f.Add([]byte(`{"auths": {"a": {"auth": "!"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte, Origin) (DockerConfig, error){ParseDockerConfig, ParseLegacyDockerConfig} {
			config, err := parse(data, Origin{Kind: FromNode})
			if err != nil && len(config.Entries) > 0 {
				t.Fatalf("an error (%v) and entries", err)
			}
			for _, e := range config.Entries {
				if e.Credential.sameSecret(Credential{}) || e.Pattern.text == "" {
					t.Fatalf("an entry that says nothing: %s for %q", said(e.Credential), e.Pattern)
				}
			}
			for _, p := range config.Problems {
				if strings.ContainsAny(p, "\n\x1b") {
					t.Fatalf("a problem that isn't a plain line: %q", p)
				}
			}
		}
	})
}
