// Package kubelet asks the kubelet itself what identity it gives static pods.
package kubelet

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/container"
)

var update = flag.Bool("update", false, "write down what the kubelet says")

// directory has the manifests that deckhand's own tests read, and what the kubelet made of them. UIDs depend on its path.
const (
	testdata = "../../internal/desired/reader/testdata"
	dir      = "kubelet"
	answers  = "kubelet.txt"
)

type noObserver struct{}

func (noObserver) ObservedPodOnWatch(*v1.Pod, time.Time) {}

// TestIdentity compares the UIDs and container hashes that deckhand is tested against with those of this kubelet.
func TestIdentity(t *testing.T) {
	t.Chdir(testdata)
	logger, ctx := klog.Background(), t.Context()
	pods := config.NewPodConfig(&record.FakeRecorder{}, noObserver{})
	config.NewSourceFile(logger, dir, "node1", time.Hour, pods.Channel(ctx, "file"))
	var lines []string
	for _, p := range (<-pods.Updates()).Pods {
		line := fmt.Sprintf("%s %s", strings.TrimSuffix(p.Name, "-node1"), p.UID)
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			line += fmt.Sprintf(" %s=%s", c.Name, strconv.FormatUint(container.HashContainer(c), 16))
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(answers, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	if manifests, err := os.ReadDir(dir); err != nil || len(manifests) != len(lines) {
		t.Errorf("the kubelet takes %d pods of %d manifests (%v)", len(lines), len(manifests), err)
	}
	if got != string(want) {
		t.Errorf("the kubelet says\n%s\nnot\n%s", got, want)
	}
}
