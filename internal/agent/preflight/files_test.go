package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
)

// pair makes a certificate that is valid for an hour from the time, and its key.
func pair(t *testing.T, from time.Time) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n"},
		NotBefore: from, NotAfter: from.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

const (
	head      = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	contextOf = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, " +
		"context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: 'https://h'}}], " +
		"users: [{name: u, user: {%s}}]}"
	providers = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n" +
		"- {name: %s, matchImages: ['*.example'], defaultCacheDuration: 1m, " +
		"apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
	tls         = "tlsCertFile: cert.pem\ntlsPrivateKeyFile: key.pem\n"
	credentials = "--image-credential-provider-config=DIR/providers.yaml --image-credential-provider-bin-dir=DIR/bin"
)

// Where problems are.
const (
	line3       = "DIR/config.yaml:3: "
	atProviders = "--image-credential-provider-config: "
)

// goodFiles are those of a machine where all is well, by name. Their certificates are valid at the time now.
func goodFiles(t *testing.T, now time.Time) map[string]string {
	cert, key := pair(t, now.Add(-time.Minute))
	_, otherKey := pair(t, now.Add(-time.Minute))
	old, oldKey := pair(t, now.Add(-2*time.Hour))
	early, earlyKey := pair(t, now.Add(time.Minute))
	return map[string]string{
		"cert.pem": cert, "key.pem": key, "other.pem": otherKey,
		"old.pem": old + oldKey, "early.pem": early + earlyKey, "no.pem": "no certificate",
		"large.pem":    strings.Repeat("#", 5<<20),
		"kubeconfig":   fmt.Sprintf(contextOf, "token: t"),
		"expired":      fmt.Sprintf(contextOf, "client-certificate: old.pem, client-key: old.pem"),
		"nobody":       fmt.Sprintf(contextOf, ""),
		"absent-token": fmt.Sprintf(contextOf, "tokenFile: absent"), "not.yaml": "[",
		"http":                strings.Replace(fmt.Sprintf(contextOf, "token: t"), "https:", "http:", 1),
		"manifests/web.yaml":  "kind: Pod\n",
		"open/web.yaml":       "kind: Pod\n",
		"anybody.yaml":        "kind: Pod\n",
		"bin/plugin":          "#!/bin/sh\n",
		"bin/text":            "no program\n",
		"providers.yaml":      fmt.Sprintf(providers, "plugin"),
		"absent-plugin.yaml":  fmt.Sprintf(providers, "absent"),
		"text-plugin.yaml":    fmt.Sprintf(providers, "text"),
		"resolv.conf":         "nameserver 10.0.0.1\n",
		"offline-key":         strings.Repeat("k", 32),
		"offline-key-public":  strings.Repeat("k", 32),
		"offline-key-invalid": "no key",
	}
}

// TestFiles: each setting that names a file, with one that can be used, one that is missing, and ones that are
// wrong. In a text, DIR is the directory of the files.
func TestFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	for name, text := range goodFiles(t, now) {
		write(t, filepath.Join(dir, name), text)
	}
	for name, mode := range map[string]os.FileMode{
		"bin/plugin": 0o755, "offline-key": 0o400, "offline-key-public": 0o644,
		"anybody.yaml": 0o666, "open": 0o777, "open/web.yaml": 0o644,
	} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		// file is a configuration without its head, flags are separated by blanks.
		file, flags string
		// problems and notes are what they begin with, a line each.
		problems, notes string
	}{
		{name: "nothing is named"},
		{name: "kubeconfig", flags: "--kubeconfig=DIR/kubeconfig"},
		{name: "kubeconfig missing", flags: "--kubeconfig=DIR/absent",
			problems: "--kubeconfig: kubeconfig DIR/absent: no such file or directory; correct the file, or name another"},
		{name: "kubeconfig broken", flags: "--kubeconfig=DIR/not.yaml",
			problems: "--kubeconfig: kubeconfig DIR/not.yaml: it can't be read as YAML"},
		{name: "kubeconfig a directory", flags: "--kubeconfig=DIR/bin",
			problems: "--kubeconfig: kubeconfig DIR/bin: is a directory"},
		{name: "kubeconfig without credentials", flags: "--kubeconfig=DIR/nobody",
			problems: "--kubeconfig: kubeconfig DIR/nobody: users[u].user: it has no credentials"},
		{name: "kubeconfig with a missing file", flags: "--kubeconfig=DIR/absent-token",
			problems: "--kubeconfig: kubeconfig DIR/absent-token: users[u].user.tokenFile: DIR/absent: no such file"},
		{name: "kubeconfig expired", flags: "--kubeconfig=DIR/expired",
			problems: "--kubeconfig: kubeconfig DIR/expired: users[u].user.client-certificate has expired at "},
		{name: "kubeconfig over http", flags: "--kubeconfig=DIR/http",
			notes: "--kubeconfig: DIR/http: the server isn't asked over https"},
		{name: "bootstrap of a kubeconfig that is missing",
			flags: "--kubeconfig=DIR/absent --bootstrap-kubeconfig=DIR/kubeconfig"},
		{name: "bootstrap of a kubeconfig that has expired",
			flags: "--kubeconfig=DIR/expired --bootstrap-kubeconfig=DIR/kubeconfig",
			notes: "--kubeconfig: kubeconfig DIR/expired: users[u].user.client-certificate has expired at "},
		{name: "bootstrap missing before there is a kubeconfig",
			flags:    "--kubeconfig=DIR/absent --bootstrap-kubeconfig=DIR/absent",
			problems: "--bootstrap-kubeconfig: kubeconfig DIR/absent: no such file or directory; correct the file (`kube"},
		{name: "bootstrap missing afterwards", flags: "--kubeconfig=DIR/kubeconfig --bootstrap-kubeconfig=DIR/absent"},
		{name: "bootstrap broken", flags: "--kubeconfig=DIR/kubeconfig --bootstrap-kubeconfig=DIR/not.yaml",
			problems: "--bootstrap-kubeconfig: kubeconfig DIR/not.yaml: it can't be read as YAML"},
		{name: "key for Secrets", flags: "--offline-secrets-key=DIR/offline-key"},
		{name: "key for Secrets missing", flags: "--offline-secrets-key=DIR/absent",
			problems: "--offline-secrets-key: open DIR/absent: no such file or directory; without"},
		{name: "key for Secrets everybody may read", flags: "--offline-secrets-key=DIR/offline-key-public",
			problems: "--offline-secrets-key: DIR/offline-key-public has mode 0644"},
		{name: "credential providers", flags: credentials},
		{name: "credential providers missing", flags: strings.Replace(credentials, "providers.yaml", "absent", 1),
			problems: atProviders + "stat DIR/absent: no such"},
		{name: "credential providers broken", flags: strings.Replace(credentials, "providers.yaml", "not.yaml", 1),
			problems: atProviders + "DIR/not.yaml: "},
		{name: "credential provider missing", flags: strings.Replace(credentials, "providers.yaml", "absent-plugin.yaml", 1),
			problems: atProviders + "DIR/absent-plugin.yaml: line 4: providers[0].name: there has to be a program"},
		{name: "credential provider that can't be executed",
			flags:    strings.Replace(credentials, "providers.yaml", "text-plugin.yaml", 1),
			problems: atProviders + "DIR/text-plugin.yaml: line 4: providers[0].name: DIR/bin/text isn't a program"},
		{name: "credential providers a pipe", flags: strings.Replace(credentials, "providers.yaml", "pipe", 1),
			problems: atProviders + "DIR/pipe: it is not a regular file"},
		{name: "lock file", flags: "--lock-file=DIR/lock"},
		{name: "lock file without its directory", flags: "--lock-file=DIR/absent/lock",
			problems: "--lock-file: DIR/absent/lock: stat DIR/absent: no such file or directory; correct"},
		{name: "lock file a directory", flags: "--lock-file=DIR/bin",
			problems: "--lock-file: DIR/bin: it isn't a regular file"},
		{name: "programs missing", flags: "--embedded-bin-dir=DIR/absent",
			problems: "--embedded-bin-dir: open DIR/absent: no such file or directory; correct --embedded-bin-dir"},
		{name: "manifests", file: "staticPodPath: manifests\n"},
		{name: "manifests missing", file: "staticPodPath: absent\n",
			problems: line3 + "staticPodPath: DIR/absent doesn't exist: create the directory, or"},
		{name: "manifests by flag missing", flags: "--pod-manifest-path=DIR/absent",
			problems: "--pod-manifest-path: DIR/absent doesn't exist"},
		{name: "manifests that all may write", file: "staticPodPath: open\n",
			problems: line3 + "staticPodPath: every user of this machine can write to the directory"},
		{name: "a manifest that all may write", file: "staticPodPath: anybody.yaml\n",
			problems: line3 + "staticPodPath: manifest DIR/anybody.yaml: every user of this machine can write to it"},
		{name: "manifest a pipe", file: "staticPodPath: pipe\n",
			problems: line3 + "staticPodPath: manifest DIR/pipe: it is a FIFO"},
		{name: "certificate", file: tls},
		{name: "certificate missing", file: strings.Replace(tls, "cert", "absent", 1),
			problems: line3 + "tlsCertFile: DIR/absent.pem: no such file or directory; tlsCertFile and"},
		{name: "key missing", file: strings.Replace(tls, "key.pem", "absent", 1),
			problems: line3 + "tlsCertFile: DIR/cert.pem: DIR/absent: no such file"},
		{name: "certificate broken", file: strings.Replace(tls, "cert", "no", 1),
			problems: line3 + "tlsCertFile: DIR/no.pem with the key DIR/key.pem: tls: failed to find any PEM data"},
		{name: "key of another", file: strings.Replace(tls, "key", "other", 1),
			problems: line3 + "tlsCertFile: DIR/cert.pem with the key DIR/other.pem: tls: private key does not match"},
		{name: "certificate expired", file: "tlsCertFile: old.pem\ntlsPrivateKeyFile: old.pem\n",
			problems: line3 + "tlsCertFile: DIR/old.pem has expired at "},
		{name: "certificate of the future", file: "tlsCertFile: early.pem\ntlsPrivateKeyFile: early.pem\n",
			problems: line3 + "tlsCertFile: DIR/early.pem isn't valid before "},
		{name: "certificate too large", file: strings.Replace(tls, "cert", "large", 1),
			problems: line3 + "tlsCertFile: DIR/large.pem: it has more than 4194304 bytes"},
		{name: "authorities", file: "authentication: {x509: {clientCAFile: cert.pem}}\n"},
		{name: "authorities missing", file: "authentication: {x509: {clientCAFile: absent}}\n",
			problems: line3 + "authentication.x509.clientCAFile: DIR/absent: no such file"},
		{name: "authorities broken", file: "authentication: {x509: {clientCAFile: no.pem}}\n",
			problems: line3 + "authentication.x509.clientCAFile: DIR/no.pem has no certificate in PEM; it has to"},
		{name: "resolver configuration missing", file: "resolvConf: absent\n",
			problems: line3 + "resolvConf: the node's resolver configuration DIR/absent doesn't exist"},
		{name: "resolver configuration a pipe", file: "resolvConf: pipe\n",
			problems: line3 + "resolvConf: the node's resolver configuration DIR/pipe is not a file"},
		{name: "runtime missing", file: "containerRuntimeEndpoint: unix://DIR/absent.sock\n",
			notes: "containerRuntimeEndpoint: unix://DIR/absent.sock: there is no such socket"},
		{name: "image service missing",
			file: "containerRuntimeEndpoint: unix://DIR/absent.sock\nimageServiceEndpoint: unix://DIR/gone.sock\n",
			notes: "containerRuntimeEndpoint: unix://DIR/absent.sock: there is no such socket\n" +
				"imageServiceEndpoint: unix://DIR/gone.sock: there is no such socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems, notes := checkFiles(t.Context(), configured(t, dir, c.file, c.flags), now, true)
			var said []string
			for _, p := range problems {
				said = append(said, p.String())
			}
			compareLines(t, dir, "problems", said, c.problems)
			compareLines(t, dir, "notes", notes, c.notes)
		})
	}
}

// configured is the configuration in a file of the directory, with flags. Its resolvConf exists, unless
// it names another.
func configured(t *testing.T, dir, file, args string) *config.Config {
	t.Helper()
	if !strings.Contains(file, "resolvConf") {
		file += "resolvConf: resolv.conf\n"
	}
	path := filepath.Join(dir, "config.yaml")
	write(t, path, head+strings.ReplaceAll(file, "DIR", dir))
	set := flags.New(filepath.Join(dir, "root"))
	parsed := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	set.AddTo(parsed)
	if err := parsed.Parse(append(strings.Fields(strings.ReplaceAll(args, "DIR", dir)), "--config="+path)); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Check(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// compareLines compares what lines begin with.
func compareLines(t *testing.T, dir, what string, got []string, want string) {
	t.Helper()
	lines := slices.Collect(strings.Lines(strings.ReplaceAll(want, "DIR", dir)))
	same := len(got) == len(lines)
	for i := 0; same && i < len(got); i++ {
		same = strings.HasPrefix(got[i], strings.TrimSpace(lines[i]))
	}
	if !same {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(lines, ""))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// all are a file and flags that name something for each setting that the embedded runtime goes with.
const (
	all = "staticPodPath: manifests\n" + tls +
		"authentication: {x509: {clientCAFile: cert.pem}}\nresolvConf: resolv.conf\n"
	allFlags = "--kubeconfig=DIR/kubeconfig --bootstrap-kubeconfig=DIR/kubeconfig " +
		"--offline-secrets-key=DIR/offline-key --lock-file=DIR/lock --embedded-bin-dir=DIR/bin " + credentials
)

// TestFilesNobodyMayRead: what a user may not open is a note for each setting, and no problem; for root it is one.
func TestFilesNobodyMayRead(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for name, text := range goodFiles(t, now) {
		write(t, filepath.Join(dir, name), text)
	}
	cfg := configured(t, dir, all, allFlags)
	var problems, ofRoot []config.Problem
	var notes []string
	asNobody(t, dir, func() {
		problems, notes = checkFiles(t.Context(), cfg, now, false)
		ofRoot, _ = checkFiles(t.Context(), cfg, now, true)
	})
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	for _, c := range fileChecks(t.Context(), cfg, now) {
		want := fmt.Sprintf("%s: %s wasn't checked: permission denied; run this command as root", c.setting, c.path)
		if !c.noteOnly && !slices.Contains(notes, want) {
			t.Errorf("missing: %s\namong %s", want, strings.Join(notes, "\n"))
		}
	}
	if len(ofRoot) < 9 {
		t.Errorf("for root: %v", ofRoot)
	}
}

// asNobody calls do in a thread that opens files as a user who may not search the directory.
func asNobody(t *testing.T, dir string, do func()) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread, and with it its user, ends with this function.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		} else if err := os.Chmod(dir, 0); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// notOpened are flags that name a file, and why Files doesn't check it.
var notOpened = map[string]string{
	"config": "it has been read", "config-dir": "it has been read",
	"root-dir": "the agent makes it", "cert-dir": "the agent makes it", "container-log-links-dir": "the agent makes it",
	"tls-private-key-file":              "it is checked with its certificate",
	"image-credential-provider-bin-dir": "it is checked with the providers",
	"volume-plugin-dir":                 "this build has no such plugins", "experimental-mounter-path": "it has no effect",
	"boot-id-file": "it has no effect", "container-hints": "it has no effect",
	"containerd": "it has no effect", "machine-id-file": "it has no effect", "docker-only": "it has no effect",
}

// TestFilesAreAll: every flag whose value is the name of a file is checked, or it is written down why not.
func TestFilesAreAll(t *testing.T) {
	set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	flags.New(t.TempDir()).AddTo(set)
	cfg := configured(t, t.TempDir(), all, allFlags)
	fields := map[string]string{ // by flag
		"pod-manifest-path": "staticPodPath", "tls-cert-file": "tlsCertFile",
		"client-ca-file": "authentication.x509.clientCAFile", "resolv-conf": "resolvConf",
		"container-runtime-endpoint": "containerRuntimeEndpoint", "image-service-endpoint": "imageServiceEndpoint",
	}
	checked := map[string]bool{}
	for _, c := range fileChecks(t.Context(), cfg, time.Now()) {
		checked[strings.TrimPrefix(c.setting, "--")] = true
	}
	named := regexp.MustCompile("`(file|files|directory|path|socket|program)`")
	found := 0
	set.VisitAll(func(f *pflag.Flag) {
		if !named.MatchString(f.Usage) {
			return
		}
		found++
		setting := f.Name
		if field, ok := fields[f.Name]; ok {
			setting = field
		}
		if checked[setting] == (notOpened[f.Name] != "") {
			t.Errorf("--%s: it is to be either in fileChecks or in notOpened", f.Name)
		}
	})
	if found < 20 {
		t.Errorf("%d flags name a file", found)
	}
}
