package apiclient

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A rotated certificate is used once it is newer than the kubeconfig's and of the same user, whatever becomes of the file later.
func TestRotatedCertificate(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	issue := func(user, group string, since, left time.Duration) (string, string) {
		cert, key := ca.issue(func(c *x509.Certificate) {
			c.Subject.CommonName, c.Subject.Organization = user, []string{group}
			c.NotBefore, c.NotAfter = time.Now().Add(-since), time.Now().Add(left)
		})
		return string(cert), string(key)
	}
	cert, key := issue("n1", "g1", 2*time.Hour, time.Hour)
	config := kubeconfig(t, "server: https://127.0.0.1:1", "client-certificate: "+write(t, filepath.Join(dir, "crt"), cert)+", client-key: "+write(t, filepath.Join(dir, "key"), key))
	rotated := filepath.Join(dir, "rotated.pem")
	for _, c := range []struct {
		name, user, group string
		since, left       time.Duration
		want              bool
	}{
		{"newer", "n1", "g1", time.Hour, time.Hour, true},
		{"newer, of another group", "n1", "g2", time.Hour, time.Hour, true},
		{"older", "n1", "g1", 3 * time.Hour, time.Hour, false},
		{"another user's", "n2", "g1", time.Hour, time.Hour, false},
		{"expired", "n1", "g1", time.Hour, -time.Minute, false},
	} {
		newer, newKey := issue(c.user, c.group, c.since, c.left)
		write(t, rotated, newer+newKey)
		got, err := ClientCertificate(config, rotated)
		if err != nil || (time.Since(got.Leaf.NotBefore) < 90*time.Minute) != c.want {
			t.Errorf("%s: used is that of %s, %v", c.name, got.Leaf.NotBefore, err)
		}
		if got, err := ClientCertificate(config, ""); err != nil || time.Since(got.Leaf.NotBefore) < 90*time.Minute {
			t.Errorf("%s, without rotation: %v, %v", c.name, got, err)
		}
	}
	write(t, rotated, "nothing")
	if _, err := ClientCertificate(config, rotated); err != nil {
		t.Error(err)
	}
	if err := os.Remove(rotated); err != nil {
		t.Fatal(err)
	}
	_, files, err := readKubeconfig(config, rotated, time.Now())
	if err != nil || files[len(files)-1] != rotated {
		t.Errorf("watched are %q, %v", files, err)
	}
}

// The kubeconfig that a node gets is for the same server as that with which it asked.
func TestIssuedKubeconfig(t *testing.T) {
	ca := newAuthority(t)
	bootstrap := kubeconfig(t, "server: https://127.0.0.1:1, certificate-authority: ca.crt, tls-server-name: api", "token: secret-token")
	write(t, filepath.Join(filepath.Dir(bootstrap), "ca.crt"), string(ca.pem))
	cert, key := ca.issue(nil)
	pair := write(t, filepath.Join(t.TempDir(), "pair.pem"), string(cert)+string(key))
	text, err := IssuedKubeconfig(bootstrap, pair)
	if err != nil || strings.Contains(string(text), "secret-token") {
		t.Fatalf("%s, %v", text, err)
	}
	id, _, err := readKubeconfig(write(t, filepath.Join(t.TempDir(), "other"), string(text)), "", time.Now())
	if err != nil || id.cert == nil || id.roots == nil || id.serverName != "api" || id.server.Host != "127.0.0.1:1" || id.insecure || id.token != "" {
		t.Errorf("%+v, %v\n%s", id, err, text)
	}
	if _, err := IssuedKubeconfig(kubeconfig(t, "", ""), pair); err == nil || !strings.Contains(err.Error(), "server: it isn't set") {
		t.Errorf("of one that is broken: %v", err)
	}
}

// A kubeconfig that somebody is about to write is no trouble as long as it isn't there.
func TestAwaitedKubeconfig(t *testing.T) {
	for _, awaited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "absent")
			c := newClient(t, path, func(conf *Config) { conf.Awaited = awaited })
			for range 2 {
				if _, err := c.load(); err == nil {
					t.Fatal("no error")
				}
			}
			if lines := len(c.log.lines); awaited && lines > 0 || !awaited && lines != 1 {
				t.Errorf("awaited %t: logged %q", awaited, c.log.lines)
			}
			write(t, path, "{")
			if _, err := c.load(); err == nil || !strings.Contains(strings.Join(c.log.lines, "\n"), "can't be used") {
				t.Errorf("logged %q, %v", c.log.lines, err)
			}
		})
	}
}
