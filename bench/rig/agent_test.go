package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
)

// The agent's own code has to understand what it is started with.
func TestArgsAndConfig(t *testing.T) {
	o := AgentOptions{Dir: t.TempDir(), Endpoint: "unix:///run/cri.sock", CgroupRoot: "/bench"}
	if err := os.WriteFile(filepath.Join(o.Dir, "config.yaml"), AgentConfig(o, 1248, 1255), 0o600); err != nil {
		t.Fatal(err)
	}
	set := flags.New(config.DefaultRootDir)
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	set.AddTo(fs)
	if err := fs.Parse(AgentArgs(o)[1:]); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	if c.Kubelet.ContainerRuntimeEndpoint != o.Endpoint || c.Kubelet.CgroupRoot != o.CgroupRoot || c.ReadOnly.Port() != 1255 ||
		c.Healthz.Port() != 1248 || c.NodeName != "bench" || c.Kubelet.StaticPodPath != filepath.Join(o.Dir, "manifests") {
		t.Errorf("the agent would run with %+v", c)
	}
	if len(c.NotActedOn) > 0 {
		t.Errorf("the agent would not act on %q", c.NotActedOn)
	}
}

func TestManifest(t *testing.T) {
	var p v1.Pod
	if err := yaml.UnmarshalStrict(Manifest("a", "example.com/i:1", []string{"sleep", "1h"}), &p); err != nil {
		t.Fatal(err)
	}
	if p.Name != "a" || p.Spec.Containers[0].Image != "example.com/i:1" || len(p.Spec.Containers[0].Args) != 2 {
		t.Errorf("manifest is %+v", p)
	}
}

func TestStageDropClear(t *testing.T) {
	a := &Agent{options: AgentOptions{Dir: t.TempDir()}}
	for _, dir := range []string{a.manifests(), a.path("staged")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want int) {
		t.Helper()
		files, err := os.ReadDir(a.manifests())
		if err != nil || len(files) != want {
			t.Errorf("%d manifests (%v), want %d", len(files), err, want)
		}
	}
	if err := a.Stage(3, "i", nil); err != nil {
		t.Fatal(err)
	}
	has(0)
	if err := a.Drop(); err != nil {
		t.Fatal(err)
	}
	has(3)
	if err := a.Clear(); err != nil {
		t.Fatal(err)
	}
	has(0)
}

func TestCount(t *testing.T) {
	c, err := count([]byte(`{"kind":"PodList","items":[
		{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}},
		{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}},
		{"status":{"phase":"Pending"}}]}`))
	if want := (Counts{Pods: 3, Running: 2, Ready: 1}); err != nil || c != want {
		t.Errorf("counted %+v (%v), want %+v", c, err, want)
	}
	if _, err := count([]byte("not found")); err == nil {
		t.Error("what is no PodList was counted")
	}
}
