package kubeletconfig_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); if that is meant, run with -update:\n%s", path, diff)
	}
}

// The golden file was checked by hand against the comments of the API type.
func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	var c v1beta1.KubeletConfiguration
	kubeletconfig.SetDefaults(&c)
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "defaults.yaml", text)
}

func TestDefaultsAreValid(t *testing.T) {
	var c v1beta1.KubeletConfiguration
	kubeletconfig.SetDefaults(&c)
	if errs := kubeletconfig.Validate(&c); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestDefaultsKeepWhatIsSet(t *testing.T) {
	doc, errs := kubeletconfig.Decode([]byte(`{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"healthzPort": 0, "failSwapOn": false, "evictionHard": {}, "enforceNodeAllocatable": [],
		"resolvConf": "", "nodeStatusUpdateFrequency": "7s", "fileCheckFrequency": "3s", "userNamespaces": {}}`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	c := doc.Config
	kubeletconfig.SetDefaults(&c)
	if *c.HealthzPort != 0 || *c.FailSwapOn || len(c.EvictionHard) != 0 || len(c.EnforceNodeAllocatable) != 0 || *c.ResolverConfig != "" {
		t.Errorf("a value that was given as zero was overwritten: %+v", c)
	}
	if got := c.NodeStatusReportFrequency.Duration.String(); got != "7s" {
		t.Errorf("nodeStatusReportFrequency = %s, want that of nodeStatusUpdateFrequency, 7s", got)
	}
	if got := c.FileCheckFrequency.Duration.String(); got != "3s" {
		t.Errorf("fileCheckFrequency = %s, want 3s", got)
	}
	if c.UserNamespaces.IDsPerPod == nil || *c.UserNamespaces.IDsPerPod != 65536 {
		t.Error("userNamespaces.idsPerPod has no default")
	}
}
