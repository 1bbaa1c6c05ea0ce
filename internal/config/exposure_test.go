package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exposed is a case of what a configuration opens.
type exposed struct {
	name, file string
	args       []string
	// want has a line for each exposure: where its message has to begin, and a word that it has to have.
	want []string
	// unknown is the same where only the file is known, and not which flags it comes with.
	unknown []string
}

var kubeconfig = []string{"--kubeconfig=/k"}

func exposures() []exposed {
	const (
		open      = "authorization.mode: AlwaysAllow with authentication.anonymous.enabled"
		certified = "authorization.mode: AlwaysAllow: any client that is authenticated"
		anonymous = "authentication.anonymous.enabled: requests without credentials"
		readOnly  = "readOnlyPort: any client that reaches"
		plainHTTP = "staticPodURL: manifests from"
	)
	anonymousAuth, alwaysAllow := "authentication: {anonymous: {enabled: true}}\n", "authorization: {mode: AlwaysAllow}\n"
	withCA := "authentication: {x509: {clientCAFile: /ca}}\n"
	return []exposed{
		{name: "nothing is said"},
		{name: "in a cluster", args: kubeconfig},
		{name: "in a cluster, with a file", file: "maxPods: 5\n", args: kubeconfig},
		{name: "the kubelet's defaults of flags", args: append([]string{"--anonymous-auth", "--authorization-mode=AlwaysAllow", "--read-only-port=10255"}, kubeconfig...), want: []string{open + "|0.0.0.0:10250"}},
		{name: "in a cluster, AlwaysAllow", file: alwaysAllow, args: kubeconfig, want: []string{certified + "|0.0.0.0:10250"}, unknown: []string{certified}},
		{name: "in a cluster, anonymous", file: anonymousAuth, args: kubeconfig, want: []string{anonymous + "|system:unauthenticated"}, unknown: []string{anonymous}},
		{name: "in a cluster, server off", file: anonymousAuth + alwaysAllow + "enableServer: false\n", args: kubeconfig},
		{name: "alone, anonymous and AlwaysAllow", file: anonymousAuth + alwaysAllow, want: []string{open + "|127.0.0.1:10250"}, unknown: []string{open + "|0.0.0.0:10250"}},
		{name: "alone, client CA and AlwaysAllow", file: withCA + alwaysAllow, want: []string{certified + "|enableServer"}, unknown: []string{certified + "|Webhook"}},
		{name: "alone, anonymous without a right", file: anonymousAuth, unknown: []string{anonymous}},
		{name: "read-only for the network", file: "address: 192.0.2.7\n", want: []string{readOnly + "|192.0.2.7:10255"}},
		{name: "read-only for all, in a cluster", file: "address: '::'\nreadOnlyPort: 10255\n", args: kubeconfig, want: []string{readOnly + "|[::]:10255"}, unknown: []string{readOnly}},
		{name: "read-only on a loopback address", file: "readOnlyPort: 10255\n", args: kubeconfig},
		{name: "read-only on IPv6's loopback address", file: "address: '::1'\nreadOnlyPort: 10255\n"},
		{name: "manifests without encryption", file: "staticPodURL: http://me:hunter2@192.0.2.8:8080/pods?token=hunter2\n", want: []string{plainHTTP + "|192.0.2.8:8080"}, unknown: []string{plainHTTP}},
		{name: "manifests of this machine", file: "staticPodURL: http://localhost:8080/pods\n"},
		{name: "manifests of this machine by address", file: "staticPodURL: http://[::1]:8080/pods\n"},
		{name: "encrypted manifests", file: "staticPodURL: https://192.0.2.8/pods\n"},
	}
}

// TestExposures: each setting that opens the node is reported, with the address where there is one, and nothing else.
func TestExposures(t *testing.T) {
	for _, tc := range exposures() {
		t.Run(tc.name, func(t *testing.T) {
			args := tc.args
			if tc.file != "" {
				args = append([]string{"--config", writeFile(t, head+tc.file)}, args...)
			}
			var got []string
			for _, e := range mustLoad(t, parse(t, args...)).Exposures {
				got = append(got, e.String())
			}
			compareExposures(t, got, tc.want)

			if tc.file == "" {
				return
			}
			_, notes, err := CheckFile(t.Context(), parse(t), "f.yaml", []byte(head+tc.file))
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, note := range notes {
				if e, ok := strings.CutPrefix(note, "open: "); ok {
					got = append(got, e)
				}
			}
			compareExposures(t, got, tc.unknown)
		})
	}
}

func compareExposures(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i, text := range got {
		begins, word, _ := strings.Cut(want[i], "|")
		if !strings.HasPrefix(text, begins) || !strings.Contains(text, word) || strings.Contains(text, "hunter2") {
			t.Errorf("got %q, want %q", text, want[i])
		}
	}
}

// TestExposuresAreDocumented in docs/security.md, each setting.
func TestExposuresAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "## Open doors")
	missing := map[string]bool{}
	for _, tc := range exposures() {
		for _, want := range append(tc.want, tc.unknown...) {
			if path, _, _ := strings.Cut(want, ":"); !strings.Contains(list, "`"+path) {
				missing[path] = true
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{}, missing); diff != "" {
		t.Error(diff)
	}
}

// TestExposuresFollowReloads.
func TestExposuresFollowReloads(t *testing.T) {
	file := writeFile(t, head)
	set := parse(t, "--config", file)
	c := mustLoad(t, set)
	put(t, file, head+"staticPodURL: http://192.0.2.8/\n")
	next, err := c.Reload(t.Context(), set)
	if err != nil || len(c.Exposures) != 0 || len(next.Exposures) != 1 {
		t.Errorf("%v: %v, then %v", err, c.Exposures, next)
	}
}
