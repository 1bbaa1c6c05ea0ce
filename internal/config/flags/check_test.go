package flags

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestCheck: everything that is wrong, at once.
func TestCheck(t *testing.T) {
	var got strings.Builder
	for _, args := range [][]string{
		{"--node-labels=a=b,c,node.kubernetes.io/x=y,a.kubelet.kubernetes.io/x=y,kubernetes.io/hostname=x,topology.kubernetes.io/zone=z,xkubernetes.io/x=y,k8s.io=x"},
		{"--node-labels=kubernetes.io/foo=x,k8s.io/x=y,node-role.kubernetes.io/worker=,node-restriction.kubernetes.io/x=y,a.k8s.io/x=y,topology.kubernetes.io/rack=a"},
		{"--node-labels==b,a b=c,/x=y,a/b/c=d,KUBERNETES.io/x=y,a=b=c"},
		{"--register-with-taints=a=b,a=b:Bogus,a=b:NoSchedule,a=c:NoSchedule,a=b:NoExecute,=b:NoSchedule,a=b=c:NoSchedule,a=b:c:NoSchedule,x=y z:NoSchedule,a-,a:NoSchedule-,"},
		{"--cloud-provider=aws"},
		{"--cloud-provider=external", "--lock-file=/run/lock/kubelet.lock", "--exit-on-lock-contention", "--journal-bytes=0", "--image-credential-provider-config=/a", "--image-credential-provider-bin-dir=/b"},
		{"--exit-on-lock-contention", "--root-dir=/", "--minimum-container-ttl-duration=-1s", "--hold-pods-for=-1s", "--await-device-plugins=-1s", "--journal-bytes=4095", "--embedded-bridge=a/b", "--image-credential-provider-config=/x"},
		{"--root-dir=", "--journal-bytes=67108865", "--embedded-bridge=", "--image-credential-provider-bin-dir=/x"},
		{"--manifest-url-header=Authorization:Bearer-hunter2,hunter2", "--manifest-url-header=hunter2"},
	} {
		fmt.Fprintf(&got, "%s\n", strings.Join(args, " "))
		for _, p := range parse(t, args...).Check() {
			fmt.Fprintf(&got, "    --%s: %s\n", p.Flag, p.Message)
		}
	}
	goldentest.Compare(t, "testdata/check.txt", got.String(), *update)
	if _, rest, _ := strings.Cut(got.String(), "--manifest-url-header=hunter2\n"); strings.Contains(rest, "hunter2") {
		t.Error("a secret is shown")
	}
}

// TestSecrets are not shown, and errors show what isn't secret.
func TestSecrets(t *testing.T) {
	s := parse(t, "--manifest-url-header=Authorization:hunter2", "--manifest-url=https://me:hunter2@example.com:8443/pods?token=hunter2#hunter2", "--storage-driver-password=hunter2")
	shown := map[string]string{}
	for _, line := range s.Shown(false) {
		shown[line.Name] = line.Value
	}
	for name, want := range map[string]string{
		"manifest-url-header":     "<masked>",
		"manifest-url":            "https://<masked>@example.com:8443/pods?<masked>",
		"storage-driver-password": "<masked>",
		"max-pods":                "110",
		"version":                 "false",
	} {
		if shown[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, shown[name], want)
		}
	}
	if all := fmt.Sprint(s.Shown(false), s.Check(), s.NotActedOn(), s.Deprecated()); strings.Contains(all, "hunter2") {
		t.Errorf("a secret is shown: %s", all)
	}
	for text, want := range map[string]string{"": "", "https://example.com/pods": "https://example.com/pods", "hunter2": "<masked>", "https:hunter2": "<masked>", "https://%zz hunter2": "<masked>"} {
		if got := maskURL(text); got != want {
			t.Errorf("maskURL(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestDeprecated(t *testing.T) {
	s := parse(t, "--pod_manifest_path=/a", "--containerd=/b", "--maximum-dead-containers=-1", "--v=2", "--root-dir=/c")
	want := []Notice{
		{"containerd", "leave it out"},
		{"maximum-dead-containers", "leave it out: the newest ended instance of each container is kept, and older ones are removed"},
		{"pod-manifest-path", "set staticPodPath in the configuration file"},
	}
	if got := s.Deprecated(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for name, r := range s.rows {
		if r.deprecated && r.replacement() == "" {
			t.Errorf("--%s is deprecated, and nothing is said to do instead", name)
		}
	}
}

// TestHelp shows what people see.
func TestHelp(t *testing.T) {
	s := New("/var/lib/kubelet")
	var b strings.Builder
	if err := PrintHelp(&b, s.Groups(), 100); err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/help.txt", b.String(), *update)
	for line := range strings.Lines(b.String()) {
		if len(line) > 101 {
			t.Errorf("too long a line: %s", line)
		}
	}
	b.Reset()
	if err := PrintHelp(&b, s.Groups(), 0); err != nil {
		t.Fatal(err)
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(b.String(), "--"+f.Name) {
			t.Errorf("narrow help doesn't have --%s", f.Name)
		}
	})
}
