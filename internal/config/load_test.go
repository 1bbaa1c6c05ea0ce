package config

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/config/flags"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fakeHost is a machine as a test wants it.
type fakeHost struct {
	name   string
	source map[bool]string // by ipv6
	lookup []string
}

func (h fakeHost) Hostname() (string, error) {
	if h.name == "" {
		return "", errors.New("no name")
	}
	return h.name, nil
}

func (h fakeHost) RouteSource(_ context.Context, ipv6 bool) (netip.Addr, error) {
	return netip.ParseAddr(h.source[ipv6])
}

func (h fakeHost) Lookup(context.Context, string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range h.lookup {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func testHost() fakeHost {
	return fakeHost{name: "Node-1", source: map[bool]string{false: "192.0.2.7"}}
}

func parse(t *testing.T, args ...string) *flags.Set {
	t.Helper()
	set := flags.New(DefaultRootDir)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set.AddTo(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return set
}

func mustLoad(t *testing.T, o *flags.Set) *Config {
	t.Helper()
	c, err := load(t.Context(), o, testHost())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	c := mustLoad(t, parse(t))
	got := []string{
		c.RootDir, c.CertDir, c.NodeName, c.NodeIPs[0].String(), c.Healthz.String(), c.ReadOnly.String(), c.ContainerLogLinksDir,
		c.Embedded.Bridge, c.Embedded.PodCIDRs[0].String(), c.Embedded.BinDir, c.Kubelet.PodLogsDir, c.Kubelet.Logging.Format,
	}
	want := []string{
		"/var/lib/kubelet", "/var/lib/kubelet/pki", "node-1", "192.0.2.7", "127.0.0.1:10248", "127.0.0.1:10255", "/var/log/containers",
		"deckhand0", "10.72.0.0/16", "", "/var/log/pods/", "text",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !c.UsesEmbeddedRuntime() || len(c.Sources) > 0 || c.NotActedOn != nil || c.Deprecated != nil {
		t.Errorf("without a file: %+v", c)
	}
}

func TestFlagsGoBeforeTheFile(t *testing.T) {
	file := writeFile(t, head+`
staticPodPath: pods
staticPodURL: http://file/
staticPodURLHeader: {From: [file]}
containerRuntimeEndpoint: unix:///file.sock
logging: {verbosity: 1, format: json}
`)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	show := func(c *Config) []string {
		k := &c.Kubelet
		return []string{
			k.StaticPodPath, k.StaticPodURL, strings.Join(k.StaticPodURLHeader["From"], "+"), k.ContainerRuntimeEndpoint,
			strconv.Itoa(int(k.Logging.Verbosity)), k.Logging.Format,
		}
	}
	fromFile := []string{filepath.Join(filepath.Dir(file), "pods"), "http://file/", "file", "unix:///file.sock", "1", "json"}
	fromFlags := []string{filepath.Join(wd, "dir"), "https://flag/", "a+b", "unix:///flag.sock", "4", "text"}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"file alone", nil, fromFile},
		{"every flag", []string{
			"--pod-manifest-path=dir", "--manifest-url=https://flag/", "--manifest-url-header=From:a,From:b",
			"--container-runtime-endpoint=unix:///flag.sock", "-v", "4", "--logging-format=text",
		}, fromFlags},
		{"underscores and long v", []string{
			"--pod_manifest_path=dir", "--manifest_url=https://flag/", "--manifest_url_header=From:a", "--manifest-url-header=From:b",
			"--container_runtime-endpoint=unix:///flag.sock", "--v=4", "--logging_format=text",
		}, fromFlags},
		{"given as empty", []string{"--pod-manifest-path=", "--manifest-url=", "--container-runtime-endpoint=", "--v=0"},
			[]string{"", "", "file", "", "0", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustLoad(t, parse(t, append(tc.args, "--config", file)...))
			if diff := cmp.Diff(tc.want, show(c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJournalBytes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want int
	}{
		{nil, 65536},
		{[]string{"--journal-bytes=0"}, -1},
		{[]string{"--journal_bytes=4096"}, 4096},
		{[]string{"--journal-bytes", "67108864"}, 64 << 20},
	} {
		if got := mustLoad(t, parse(t, tc.args...)).JournalBytes; got != tc.want {
			t.Errorf("%q: %d, want %d", tc.args, got, tc.want)
		}
	}
	for _, bad := range []string{"-1", "1", "4095", "67108865"} {
		var invalid *InvalidError
		_, err := load(t.Context(), parse(t, "--journal-bytes="+bad), testHost())
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Problems[0].String(), "--journal-bytes: "+bad+" is neither 0") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Who may ask has to be known: to the API server, or without one to the configuration, which has to say it.
func TestHTTPSEndpoint(t *testing.T) {
	const closed = "invalid AddrPort"
	cluster := []string{"--kubeconfig=/etc/kubeconfig"}
	for _, tc := range []struct {
		name, file string
		args       []string
		want       string
	}{
		{"nothing is said", "", nil, closed},
		{"nothing is said, with a file", head, nil, closed},
		{"in a cluster", "", cluster, "0.0.0.0:10250"},
		{"in a cluster, with a file", head + "address: 192.0.2.1\nport: 10260\n", cluster, "192.0.2.1:10260"},
		{"a cluster to be joined", "", append([]string{"--bootstrap-kubeconfig=/b"}, cluster...), "0.0.0.0:10250"},
		{"switched off", head + "enableServer: false\n", cluster, closed},
		{"client CA", head + "authentication: {x509: {clientCAFile: /ca.crt}}\n", nil, closed},
		{"client CA and AlwaysAllow", head + "authentication: {x509: {clientCAFile: /ca.crt}}\nauthorization: {mode: AlwaysAllow}\n", nil, "127.0.0.1:10250"},
		{"client CA and AlwaysAllow by flags", "", []string{"--client-ca-file=/ca.crt", "--authorization-mode=AlwaysAllow", "--address=0.0.0.0"}, "0.0.0.0:10250"},
		{"AlwaysAllow, but nobody gets in", head + "authorization: {mode: AlwaysAllow}\n", nil, closed},
		{"anonymous and AlwaysAllow", head + "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n", nil, "127.0.0.1:10250"},
		{"anonymous by the flag's default", "", []string{"--authorization-mode=AlwaysAllow"}, closed},
		{"AlwaysAllow by the flag's default", "", []string{"--anonymous-auth=true", "--client-ca-file=/ca.crt"}, closed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := tc.args
			if tc.file != "" {
				args = append(slices.Clone(args), "--config", writeFile(t, tc.file))
			}
			if got := mustLoad(t, parse(t, args...)).HTTPS.String(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestReadOnlyEndpoint(t *testing.T) {
	for _, tc := range []struct {
		file string
		args []string
		want string
	}{
		{"", nil, "127.0.0.1:10255"},
		{"address: 192.0.2.7", nil, "192.0.2.7:10255"},
		{"readOnlyPort: 0", nil, "127.0.0.1:0"},
		{"readOnlyPort: 10256", nil, "127.0.0.1:10256"},
		{"readOnlyPort: 10256", []string{"--kubeconfig=/k"}, "127.0.0.1:10256"},
		{"readOnlyPort: 10256", []string{"--address=0.0.0.0"}, "0.0.0.0:10256"},
		{"{address: 0.0.0.0, readOnlyPort: 10256}", nil, "0.0.0.0:10256"},
		{"{address: '::1', readOnlyPort: 80}", nil, "[::1]:80"},
	} {
		text := head + tc.file
		if strings.HasPrefix(tc.file, "{") {
			text = "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, " + tc.file[1:]
		}
		if got := mustLoad(t, parse(t, append(tc.args, "--config", writeFile(t, text))...)).ReadOnly.String(); got != tc.want {
			t.Errorf("%q %q: served at %s, want %s", tc.file, tc.args, got, tc.want)
		}
	}
}

func TestNotActedOnIsReported(t *testing.T) {
	c := mustLoad(t, parse(t, "--config", writeFile(t, head+"providerID: a\nstaticPodPath: /x\n")))
	if diff := cmp.Diff(1, len(c.NotActedOn)); diff != "" {
		t.Error(diff)
	}
}

func TestUnreadableFile(t *testing.T) {
	_, err := Load(t.Context(), parse(t, "--config", filepath.Join(t.TempDir(), "none")))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--config") {
		t.Errorf("got %v", err)
	}
}

// Load with the real host: whatever it is, there is a name and an address.
func TestLoadOnThisHost(t *testing.T) {
	c, err := Load(t.Context(), parse(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeName == "" || len(c.NodeIPs) != 1 || !c.NodeIPs[0].IsValid() || c.NodeIPs[0].IsUnspecified() {
		t.Errorf("name %q, addresses %v", c.NodeName, c.NodeIPs)
	}
}

// Each testdata/*.txtar holds flags (one a line), perhaps a config file and drop-ins
// (conf.d/*.conf), and the error they come to.
func TestGoldenErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]string{}
			for _, f := range a.Files {
				in[f.Name] = string(f.Data)
			}
			args := strings.FieldsFunc(in["flags"], func(r rune) bool { return r == '\n' })
			dir := t.TempDir()
			for name, text := range in {
				if name == "config" || filepath.Dir(name) == "conf.d" {
					put(t, filepath.Join(dir, name), text)
					args = append(args, map[bool]string{true: "--config=" + dir + "/config", false: "--config-dir=" + dir + "/conf.d"}[name == "config"])
				}
			}
			o := parse(t, args...)
			_, err = load(t.Context(), o, testHost())
			if err == nil {
				t.Fatal("it was taken as valid")
			}
			got := strings.ReplaceAll(err.Error()+"\n", dir, "DIR")
			if *update {
				a.Files = append(a.Files[:len(a.Files)-1], txtar.File{Name: "error", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(in["error"], got); diff != "" {
				t.Errorf("(-want +got); if that is meant, run with -update:\n%s", diff)
			}
		})
	}
}

func TestDeadContainers(t *testing.T) {
	usual := DeadContainers{PerContainer: 1, Total: -1}
	if got := mustLoad(t, parse(t)).DeadContainers; got != usual {
		t.Errorf("without flags: %+v, want %+v", got, usual)
	}
	got := mustLoad(t, parse(t, "--minimum-container-ttl-duration=1m", "--maximum-dead-containers-per-container=0", "--maximum-dead-containers=9")).DeadContainers
	if want := (DeadContainers{MinAge: time.Minute, Total: 9}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var invalid *InvalidError
	if _, err := load(t.Context(), parse(t, "--minimum-container-ttl-duration=-1s"), testHost()); !errors.As(err, &invalid) {
		t.Errorf("an age in the past: %v", err)
	}
}

func TestCredentialProviders(t *testing.T) {
	got := mustLoad(t, parse(t, "--image-credential-provider-config=conf.yaml", "--image-credential-provider-bin-dir=/opt/plugins/")).CredentialProviders
	if got.BinDir != "/opt/plugins" || !filepath.IsAbs(got.Config) || filepath.Base(got.Config) != "conf.yaml" {
		t.Errorf("got %+v", got)
	}
	if got := mustLoad(t, parse(t)).CredentialProviders; got != (CredentialProviders{}) {
		t.Errorf("without flags: %+v", got)
	}
	for _, arg := range []string{"--image-credential-provider-config=conf.yaml", "--image-credential-provider-bin-dir=/opt"} {
		var invalid *InvalidError
		if _, err := load(t.Context(), parse(t, arg), testHost()); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "is needed beside") {
			t.Errorf("%s alone: %v", arg, err)
		}
	}
}

func TestNodeLabels(t *testing.T) {
	c := mustLoad(t, parse(t, "--node-labels=disk=fast,node.kubernetes.io/rack=3", "--hostname-override=edge-7"))
	want := map[string]string{"kubernetes.io/hostname": "edge-7", "kubernetes.io/os": "linux", "kubernetes.io/arch": runtime.GOARCH,
		"disk": "fast", "node.kubernetes.io/rack": "3"}
	if diff := cmp.Diff(want, c.NodeLabels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.NotActedOn) > 0 {
		t.Errorf("said to be without effect: %v", c.NotActedOn)
	}
}

// TestOfflineSecretsKey: it is a file, or by a name alone a credential of the service manager's.
func TestOfflineSecretsKey(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	if got := mustLoad(t, parse(t)).OfflineSecretsKey; got != "" {
		t.Errorf("the default is %q", got)
	}
	if got := mustLoad(t, parse(t, "--offline-secrets-key=/k")).OfflineSecretsKey; got != "/k" {
		t.Errorf("a file: %q", got)
	}
	if _, err := load(t.Context(), parse(t, "--offline-secrets-key=k"), testHost()); err == nil || !strings.Contains(err.Error(), "LoadCredential=k:") {
		t.Errorf("a credential that nobody gave: %v", err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/deckhand.service")
	if got := mustLoad(t, parse(t, "--offline-secrets-key=k")).OfflineSecretsKey; got != "/run/credentials/deckhand.service/k" {
		t.Errorf("a credential: %q", got)
	}
}
