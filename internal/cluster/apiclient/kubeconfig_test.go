package apiclient

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Whatever is wrong with a kubeconfig is said with file and field, and nothing secret.
func TestBrokenKubeconfigs(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(nil)
	_, other := ca.issue(nil)
	dir := t.TempDir()
	file := func(name, text string) string { return write(t, filepath.Join(dir, name), text) }
	certFile, keyFile := file("cert.pem", string(cert)), file("key.pem", string(key))
	data := base64.StdEncoding.EncodeToString
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const server = "server: https://127.0.0.1:6443"
	whole := func(text string) string { return file("whole", text) }
	of := func(cluster, user string) string { return kubeconfig(t, cluster, user) }
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "absent"), "KUBECONFIG: no such file or directory"},
		{dir, "KUBECONFIG: is a directory"},
		{pipe, "KUBECONFIG: it is not a regular file"},
		{file("empty", "\n"), "KUBECONFIG: the file is empty"},
		{file("large", strings.Repeat("#", maxFile+1)), "KUBECONFIG: it has more than 1048576 bytes, which is the most that is read"},
		{file("tabs", "a: [\n\t- secret-token"), "KUBECONFIG: it can't be read as YAML: "},
		{file("kind", "{kind: Pod, contexts: []}"), `KUBECONFIG: kind: it is "Pod", a kubeconfig has Config`},
		{file("version", "{apiVersion: v2}"), `KUBECONFIG: apiVersion: it is "v2", a kubeconfig has v1`},
		{file("nothing", "{kind: Config}"), "KUBECONFIG: contexts: there is none"},
		{file("type", "{users: [{name: u, user: {token: {secret-token: 1}}}]}"), "KUBECONFIG: users.user.token: a value of type string is needed, not object"},
		{file("current", "contexts: [{name: a}, {name: b}]"), "KUBECONFIG: current-context: it isn't set: it has to name one of the contexts a, b"},
		{file("context", "{current-context: c, contexts: [{name: a}]}"), `KUBECONFIG: current-context: there is no context "c", only a`},
		{file("noname", "{current-context: a, contexts: [{name: a}]}"), "KUBECONFIG: contexts[a].context.cluster: it isn't set"},
		{file("cluster", "{current-context: a, contexts: [{name: a, context: {cluster: k, user: u}}]}"), `KUBECONFIG: contexts[a].context.cluster: there is no cluster "k" in clusters`},
		{file("nouser", "{current-context: a, contexts: [{name: a, context: {cluster: k}}], clusters: [{name: k}]}"), "KUBECONFIG: contexts[a].context.user: it isn't set"},
		{file("user", "{current-context: a, contexts: [{name: a, context: {cluster: k, user: u}}], clusters: [{name: k}]}"), `KUBECONFIG: contexts[a].context.user: there is no user "u" in users`},
		{of("", ""), "KUBECONFIG: clusters[k].cluster.server: it isn't set"},
		{of("server: 'localhost:6443'", ""), "KUBECONFIG: clusters[k].cluster.server: it isn't a URL like https://HOST:PORT"},
		{of("server: 'https://:6443'", ""), "KUBECONFIG: clusters[k].cluster.server: https://:6443 has no host"},
		{of("server: 'ftp://h'", ""), "KUBECONFIG: clusters[k].cluster.server: it isn't a URL like https://HOST:PORT"},
		{of("server: 'https://me:secret-token@h'", ""), "KUBECONFIG: clusters[k].cluster.server: it has a user name: credentials belong into users"},
		{of(server+", proxy-url: 'h:1'", ""), "KUBECONFIG: clusters[k].cluster.proxy-url: it isn't a URL like http://HOST:PORT"},
		{of(server+", certificate-authority-data: '%'", ""), "KUBECONFIG: clusters[k].cluster.certificate-authority-data: it isn't base64: illegal base64 data at input byte 0"},
		{of(server+", certificate-authority-data: "+data([]byte("x")), ""), "KUBECONFIG: clusters[k].cluster.certificate-authority-data: there is no certificate in PEM format in it"},
		{of(server+", certificate-authority: /absent/ca", ""), "KUBECONFIG: clusters[k].cluster.certificate-authority: /absent/ca: no such file or directory"},
		{of(server+", insecure-skip-tls-verify: true, certificate-authority: "+certFile, ""), "KUBECONFIG: clusters[k].cluster.insecure-skip-tls-verify: it can't be true beside certificate-authority"},
		{of(server, "client-certificate: "+certFile), "KUBECONFIG: users[u].user.client-key: it isn't set, though client-certificate is"},
		{of(server, "client-key: "+keyFile), "KUBECONFIG: users[u].user.client-certificate: it isn't set, though client-key is"},
		{of(server, "client-certificate: /absent/c, client-key: "+keyFile), "KUBECONFIG: users[u].user.client-certificate: /absent/c: no such file or directory"},
		{of(server, "client-certificate: "+keyFile+", client-key: "+keyFile), "KUBECONFIG: users[u].user.client-certificate: there is no certificate in PEM format in it"},
		{of(server, "client-certificate: "+certFile+", client-key: "+certFile), "KUBECONFIG: users[u].user.client-key: there is no private key in PEM format in it"},
		{of(server, "client-certificate: "+certFile+", client-key-data: "+data(other)), "KUBECONFIG: users[u].user.client-key-data: it isn't the key of the certificate in client-certificate, or can't be read: tls: private key does not match public key"},
		{of(server, "client-certificate-data: '-', client-key: "+keyFile), "KUBECONFIG: users[u].user.client-certificate-data: it isn't base64"},
		{of(server, "tokenFile: /absent/t"), "KUBECONFIG: users[u].user.tokenFile: /absent/t: no such file or directory"},
		{of(server, "tokenFile: "+file("blank", " \n")), "KUBECONFIG: users[u].user.tokenFile: " + filepath.Join(dir, "blank") + " is empty"},
		{of(server, "token: 'secret-token and more'"), "KUBECONFIG: users[u].user.token: it has characters that a token can't have"},
		{of(server, "as: somebody"), "KUBECONFIG: users[u].user.as: a node can't act as another user"},
		{of(server, "username: me, password: secret-token"), "KUBECONFIG: users[u].user.username: API servers don't take passwords any more"},
		{of(server, "auth-provider: {name: gcp}"), "KUBECONFIG: users[u].user.auth-provider: Kubernetes has removed it: use exec"},
		{of(server, "exec: {command: /bin/true}"), `KUBECONFIG: users[u].user.exec.apiVersion: it is "": it has to be client.authentication.k8s.io/v1 or v1beta1`},
		{of(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}"), "KUBECONFIG: users[u].user.exec.interactiveMode: it isn't set"},
		{of(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Always}"), "KUBECONFIG: users[u].user.exec.interactiveMode: it is Always"},
		{of(server, "exec: {apiVersion: client.authentication.k8s.io/v1beta1}"), "KUBECONFIG: users[u].user.exec.command: it isn't set"},
		{of(server, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: absent-plugin, installHint: Get it at the shop.}"), "KUBECONFIG: users[u].user.exec.command: exec: \"absent-plugin\": executable file not found in $PATH. Get it at the shop."},
		{whole("current-context: a\ncontexts:\n- name: a\n  context: {cluster: k, user: u}\nclusters: [{name: k, cluster: {server: 'https://h'}}]\nusers: nothing"), "KUBECONFIG: users: a value of type "},
	} {
		_, _, err := readKubeconfig(c.path, "", time.Now())
		if err == nil {
			t.Errorf("%s is taken", c.want)
			continue
		}
		want := strings.Replace(c.want, "KUBECONFIG", "kubeconfig "+c.path, 1)
		if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret-token") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
}

// A file that nobody may read is named, also when its directory is the obstacle. Root reads everything, so the message is made
// by the one thing that it can't read.
func TestUnreadableFile(t *testing.T) {
	_, err := safeopen.ReadRegular("/proc/self/mem", maxFile)
	if err == nil || strings.Contains(err.Error(), "/proc") {
		t.Errorf("got %v", err)
	}
}

func TestGoodKubeconfigs(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(nil)
	old, oldKey := ca.issue(expired)
	data := base64.StdEncoding.EncodeToString
	const server = "server: https://127.0.0.1:6443"
	for name, c := range map[string]struct {
		cluster, user string
		check         func(*identity) bool
		files         []string
	}{
		"nothing but a server": {server, "", func(id *identity) bool { return id.roots == nil && id.cert == nil && id.token == "" }, nil},
		"a path":               {"server: https://h/k8s/clusters/c", "", func(id *identity) bool { return id.server.Path == "/k8s/clusters/c" }, nil},
		"CA, certificate and key": {server + ", certificate-authority-data: " + data(ca.pem), "client-certificate-data: " + data(cert) + ", client-key-data: " + data(key),
			func(id *identity) bool { return id.roots != nil && id.cert != nil && id.warning == "" }, nil},
		"files beside it": {server + ", certificate-authority: ca.pem", "client-certificate: both.pem, client-key: both.pem",
			func(id *identity) bool { return id.roots != nil && id.cert != nil }, []string{"ca.pem", "both.pem", "both.pem"}},
		"data before files": {server, "client-certificate: absent, client-key: absent, client-certificate-data: " + data(cert) + ", client-key-data: " + data(key), func(id *identity) bool { return id.cert != nil }, nil},
		"token":             {server, "token: abc", func(id *identity) bool { return id.token == "abc" }, nil},
		"token file first":  {server, "token: abc, tokenFile: token", func(id *identity) bool { return id.token == "xyz" }, []string{"token"}},
		"a token and exec":  {server, "token: abc, exec: {}", func(id *identity) bool { return id.plugin == nil }, nil},
		"insecure":          {server + ", insecure-skip-tls-verify: true", "", func(id *identity) bool { return id.insecure }, nil},
		"name and proxy": {server + ", tls-server-name: kubernetes, proxy-url: 'socks5://p:1', disable-compression: true", "", func(id *identity) bool {
			return id.serverName == "kubernetes" && id.proxy.Host == "p:1" && id.noCompression
		}, nil},
		"unknown fields": {server + ", extensions: [{name: x, extension: {a: 1}}], more: 1", "", func(*identity) bool { return true }, nil},
		"http":           {"server: http://h", "token: abc", func(id *identity) bool { return id.token == "" && strings.Contains(id.warning, "no credentials") }, nil},
		"expired certificate": {server, "client-certificate-data: " + data(old) + ", client-key-data: " + data(oldKey), func(id *identity) bool {
			return strings.HasPrefix(id.warning, "users[u].user.client-certificate-data has expired at ")
		}, nil},
		"exec": {server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never, provideClusterInfo: true}",
			func(id *identity) bool {
				return strings.HasSuffix(id.plugin.Command, "/plugin") && id.plugin.Cluster.Server == "https://127.0.0.1:6443"
			}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := kubeconfig(t, c.cluster, c.user)
			dir := filepath.Dir(path)
			write(t, filepath.Join(dir, "ca.pem"), string(ca.pem))
			write(t, filepath.Join(dir, "both.pem"), string(cert)+string(key))
			write(t, filepath.Join(dir, "token"), "xyz\n")
			plugin := write(t, filepath.Join(dir, "plugin"), "#!/bin/sh\n")
			if err := os.Chmod(plugin, 0o700); err != nil {
				t.Fatal(err)
			}
			id, files, err := readKubeconfig(path, "", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(id) {
				t.Errorf("read as %+v", id)
			}
			want := []string{path}
			for _, f := range c.files {
				want = append(want, filepath.Join(dir, f))
			}
			if !slices.Equal(files, want) {
				t.Errorf("files %q, want %q", files, want)
			}
		})
	}
}

// What is used is the same as long as all files say the same, and another one as soon as one of them doesn't.
func TestSumOfAKubeconfig(t *testing.T) {
	ca, others := newAuthority(t), newAuthority(t)
	path := kubeconfig(t, "server: https://h, certificate-authority: ca.pem", "tokenFile: token")
	dir := filepath.Dir(path)
	sums := map[[32]byte]string{}
	for i, change := range []func(){
		func() {
			write(t, filepath.Join(dir, "ca.pem"), string(ca.pem))
			write(t, filepath.Join(dir, "token"), "a")
		},
		func() { write(t, filepath.Join(dir, "token"), "b") },
		func() { write(t, filepath.Join(dir, "ca.pem"), string(others.pem)) },
	} {
		change()
		for range 2 {
			id, _, err := readKubeconfig(path, "", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			sums[id.sum] = fmt.Sprint(i)
		}
		if len(sums) != i+1 {
			t.Errorf("after change %d there are %d different sums", i, len(sums))
		}
	}
}
