package lastknown

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

var (
	secretKey = object.Key{Kind: object.Secret, Namespace: "default", Name: "secret"}
	request   = object.TokenRequest{Namespace: "default", ServiceAccount: "robot", Pod: "a", UID: "a-uid", Life: time.Hour}
)

// keyFile makes a file of keys.
func keyFile(t *testing.T, mode fs.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func inBase64(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keySize)) + "\n"
}

func withKeys(path, keys string) *Store {
	s := New(path, keys, &server{})
	s.Open("node1")
	return s
}

// secretsIn are the Secret and the token that a store has, and whether the file has either in the clear.
func secretsIn(t *testing.T, s *Store, path string) string {
	t.Helper()
	var has []string
	if o, _ := s.Object(secretKey); o != nil && string(o.(*v1.Secret).Data["k"]) == "canary-value" {
		has = append(has, "secret")
	}
	if token, known := s.Token(request); known && token.Value() == "canary-token" && token.Until.Equal(time.Unix(7200, 0)) {
		has = append(has, "token")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, canary := range []string{"canary", base64.StdEncoding.EncodeToString([]byte("canary-value"))[:12], "robot"} {
		if bytes.Contains(text, []byte(canary)) {
			t.Errorf("%q is in the file", canary)
		}
	}
	return strings.Join(has, " ")
}

// TestSecrets: with a key, Secrets and tokens are kept, encrypted. Another key encrypts them again, if the one before is there, too; else they wait for
// the API server. Without a key they are gone.
func TestSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	first := keyFile(t, 0o400, strings.Repeat("1", keySize))
	s := withKeys(path, first)
	fill(s)
	s.SetToken(request, object.NewToken("canary-token", time.Unix(3600, 0), time.Unix(7200, 0)))
	s.SetToken(object.TokenRequest{UID: "nobody's"}, object.NewToken("canary-token", time.Unix(0, 0), time.Unix(0, 0)))
	write(t, s)
	content := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if s = withKeys(path, first); secretsIn(t, s, path) != "secret token" || len(s.Problems()) > 0 {
		t.Fatalf("with its key: %q, %v", secretsIn(t, s, path), s.Problems())
	}
	old := s.keys[0].id

	other := withKeys(path, keyFile(t, 0o400, inBase64('2')))
	if got := secretsIn(t, other, path); got != "" || len(other.Problems()) != 1 || !strings.Contains(other.Problems()[0].Message, "2 Secrets and tokens were encrypted with another key") ||
		!strings.Contains(other.WhyUnknown(secretKey), "another key") || !strings.Contains(other.WhyNoToken(request), "another key") {
		t.Errorf("with another key: %q, %v, %s", got, other.Problems(), other.WhyUnknown(secretKey))
	}
	other.SetNode(&v1.Node{})
	other.log.Outgrow()
	write(t, other)
	if !strings.Contains(content(), old) {
		t.Error("what another key has encrypted is lost")
	}

	both := keyFile(t, 0o400, inBase64('2')+"\n"+inBase64('1'))
	s = withKeys(path, both)
	if got := secretsIn(t, s, path); got != "secret token" {
		t.Errorf("with both keys: %q, %v", got, s.Problems())
	}
	write(t, s)
	if text := content(); strings.Contains(text, old) || !strings.Contains(text, s.keys[0].id) {
		t.Errorf("it isn't encrypted again: %s", text)
	}
	if s = withKeys(path, keyFile(t, 0o400, inBase64('2'))); secretsIn(t, s, path) != "secret token" {
		t.Errorf("with the new key: %v", s.Problems())
	}

	// What the API server tells again is encrypted with the key of the day.
	s = withKeys(path, keyFile(t, 0o400, inBase64('3')))
	s.SetObject(secretKey, &v1.Secret{Data: map[string][]byte{"k": []byte("canary-value")}})
	if got := secretsIn(t, s, path); got != "secret" {
		t.Errorf("told again: %q", got)
	}
	// Whatever becomes of a pod, its secrets go with it.
	s.Forget("a-uid")
	s.log.Outgrow()
	write(t, s)
	if text := content(); strings.Contains(text, "sealed") {
		t.Errorf("left: %s", text)
	}

	s = withKeys(path, first)
	fill(s)
	write(t, s)
	none := withKeys(path, "")
	if !strings.Contains(none.WhyUnknown(secretKey), "--offline-secrets-key") || none.WhyUnknown(configMap("conf")) != "" {
		t.Errorf("why: %q", none.WhyUnknown(secretKey))
	}
	write(t, none)
	if strings.Contains(content(), "sealed") {
		t.Error("without a key, what is encrypted stays")
	}
}

// TestMovedRecord: what is encrypted for one name is of no use under another.
func TestMovedRecord(t *testing.T) {
	keys, err := readKeys(keyFile(t, 0o400, inBase64('1')))
	if err != nil {
		t.Fatal(err)
	}
	c := keys.seal("Secret/default/a", []byte("x"))
	if _, _, err := keys.open("Secret/default/b", c); err == nil {
		t.Error("it was decrypted")
	}
	if text, current, err := keys.open("Secret/default/a", c); err != nil || !current || string(text) != "x" {
		t.Errorf("%q, %v, %v", text, current, err)
	}
}

func TestKeyFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		want string
	}{
		"others may read it": {keyFile(t, 0o440, inBase64('1')), "mode 0440"},
		"it may be written":  {keyFile(t, 0o600, inBase64('1')), "chmod 0400"},
		"too short":          {keyFile(t, 0o400, "c2hvcnQ=\n"), "head -c 32"},
		"no base64":          {keyFile(t, 0o400, strings.Repeat("-", 44)), "neither 32 bytes"},
		"empty":              {keyFile(t, 0o400, "\n"), "is empty"},
		"missing":            {filepath.Join(t.TempDir(), "none"), "no such file"},
		"a directory":        {t.TempDir(), "mode"},
	} {
		path := filepath.Join(t.TempDir(), "known")
		s := withKeys(path, tc.path)
		fill(s)
		write(t, s)
		if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, tc.want) || secretsIn(t, withKeys(path, ""), path) != "" || !strings.Contains(s.WhyUnknown(secretKey), tc.want) {
			t.Errorf("%s: %v", name, p)
		}
	}
}
