package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProblemSaysWhere(t *testing.T) {
	for want, p := range map[string]Problem{
		"/etc/k.yaml:7: logging.format: bad":     {File: "/etc/k.yaml", Line: 7, Field: "logging.format", Message: "bad"},
		"/etc/k.yaml:7: bad":                     {File: "/etc/k.yaml", Line: 7, Message: "bad"},
		"/etc/k.yaml: kind: bad":                 {File: "/etc/k.yaml", Field: "kind", Message: "bad"},
		"--max-pods: bad":                        {Flag: "--max-pods", Message: "bad"},
		"--eviction-hard: evictionHard[a]: bad":  {Flag: "--eviction-hard", Field: "evictionHard[a]", Message: "bad"},
		"--node-ip: bad":                         {Flag: "--node-ip", Message: "bad"},
		"kubeReservedCgroup: is needed for that": {Field: "kubeReservedCgroup", Message: "is needed for that"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

func TestProblemsAreInTheOrderOfFiles(t *testing.T) {
	files := []string{"z", "a"}
	want := []Problem{
		{File: "z", Field: "kind"}, {File: "z", Line: 2, Field: "y"}, {File: "z", Line: 2, Field: "x"}, {File: "z", Line: 10},
		{File: "a", Line: 1}, {Field: "nobody's"}, {Flag: "--b"}, {Flag: "--a"},
	}
	got := []Problem{want[6], want[5], want[7], want[4], want[3], want[1], want[2], want[0]}
	sortProblems(got, files)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A problem that a flag has brought about names the flag, and the field that is missing.
func TestProblemsOfFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--max-pods=-1": "--max-pods: Invalid value: -1: must be 0 or more",
		"--enforce-node-allocatable=kube-reserved": "--enforce-node-allocatable: kubeReservedCgroup: it is needed for kube-reserved in enforceNodeAllocatable",
		"--eviction-hard=memory.available<101%":    `--eviction-hard: evictionHard[memory.available]: Invalid value: "101%": must be a percentage from "0%" to "100%", which both turn it off`,
		"--image-gc-high-threshold=70":             "--image-gc-high-threshold: imageGCLowThresholdPercent: Invalid value: 80: must be less than imageGCHighThresholdPercent (70); set this one too, if it isn't",
		"--bootstrap-kubeconfig=/b":                "--bootstrap-kubeconfig: --kubeconfig has to say where the kubeconfig with the new client certificate is to be written",
		"--healthz-port=10255":                     "--healthz-port: readOnlyPort: Invalid value: 10255: is the number of healthzPort too, on 127.0.0.1; each needs one of its own",
	} {
		_, _, err := Check(t.Context(), parse(t, args))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || invalid.Problems[0].String() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// So many problems are reported as a person can fix at once.
func TestProblemsComeToAnEnd(t *testing.T) {
	text := head + "clusterDNS: [" + strings.Repeat("x,", 1000) + "]\nmaxPods: -1\n" + strings.Repeat("maxPods: 1\n", 10)
	_, _, err := CheckFile(t.Context(), parse(t), "new.yaml", []byte(text))
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != maxProblems+1 {
		t.Fatalf("the error is %v", err)
	}
	want := Problem{File: "new.yaml", Line: 3, Message: "here and further on there are 810 more problems"}
	if diff := cmp.Diff(want, invalid.Problems[maxProblems]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// CheckFile takes the text for the file, and asks nothing of the host.
func TestCheckFile(t *testing.T) {
	set := parse(t, "--kubeconfig=/k", "--max-pods=0")
	_, notes, err := CheckFile(t.Context(), set, "new.yaml", []byte(head+"iptablesDropBit: 3\nmaxPods: -1\n"))
	if err != nil || !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "iptablesDropBit") }) {
		t.Errorf("notes %q, error %v", notes, err)
	}
	_, _, err = CheckFile(t.Context(), set, "new.yaml", []byte("kind: x\nmaxPods: 1"))
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("the error is %v", err)
	}
	want := []Problem{
		{File: "new.yaml", Field: "apiVersion", Message: `it is missing; it must be "kubelet.config.k8s.io/v1beta1"`},
		{File: "new.yaml", Line: 1, Field: "kind", Message: `"x" isn't supported; it must be "KubeletConfiguration"`},
	}
	if diff := cmp.Diff(want, invalid.Problems); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
