package reader_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// A node that changes from the kubelet to deckhand goes on with its static pods: test/kubernetes has asked the kubelet
// for their UIDs, which depend on the path they were read from.
func TestUIDsAreTheKubelets(t *testing.T) {
	answers, err := os.ReadFile("testdata/kubelet.txt")
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for line := range strings.Lines(string(answers)) {
		fields := strings.Fields(line)
		uids[fields[0]] = fields[1]
	}
	manifests, err := filepath.Glob("testdata/kubelet/*")
	if err != nil || len(manifests) != len(uids) {
		t.Fatalf("%d manifests, %d UIDs (%v)", len(manifests), len(uids), err)
	}
	r := reader.New("Node1", pod.SourceFile, reader.Rules{
		SetDefaults: func(p *v1.Pod) {
			spec.SetDefaults(p)
			p.Status.QOSClass = v1.PodQOSBurstable // as the agent's rules do
		},
		Validate: func(*v1.Pod) field.ErrorList { return nil },
	})
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := r.Read(text)
		if err != nil || len(docs) != 1 || len(docs[0].Errors) > 0 {
			t.Fatalf("%s: %+v, %v", path, docs, err)
		}
		origin := strings.TrimPrefix(path, "testdata/")
		p, wrong := r.Complete(docs[0], reader.First(r.UID(docs[0], origin), time.Unix(0, 0)))
		if len(wrong) > 0 {
			t.Fatalf("%s: %q", path, wrong)
		}
		name := strings.TrimSuffix(p.Name, "-node1")
		if want := uids[name]; string(p.UID) != want {
			t.Errorf("%s: UID %s, the kubelet's is %s", path, p.UID, want)
		}
	}
}
