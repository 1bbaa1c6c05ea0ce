package buildinfo

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestGetNamesVersionAndToolchain(t *testing.T) {
	info := Get()
	if info.Version == "" || info.Go == "" || info.Platform == "" {
		t.Fatalf("incomplete: %+v", info)
	}
}

func TestCommit(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"not recorded": {nil, ""},
		"clean":        {[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		"dirty":        {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123456789abcdef"}}, "0123456789ab+dirty"},
		"short":        {[]debug.BuildSetting{{Key: "vcs.revision", Value: "01"}}, "01"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := commit(tc.settings); got != tc.want {
				t.Errorf("commit: got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	info := Info{Version: "v1.2.3", Commit: "abc", Go: "go1.26", Platform: "linux/amd64"}
	if got, want := info.String(), "v1.2.3 (abc) go1.26 linux/amd64"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The kubelet's version that is told is the one whose libraries are built in.
func TestKubernetesIsThatOfTheLibraries(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "k8s.io/kubelet v0" + strings.TrimPrefix(Kubernetes, "v1") + "\n"; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod doesn't say %q", want)
	}
}
