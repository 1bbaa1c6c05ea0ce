package cluster_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

// TestAttachedVolumes: Kubernetes' own controller attaches and detaches a volume by the lists of the node's object. The
// test stands in for the driver's controller.
func TestAttachedVolumes(t *testing.T) {
	p := plane.Start(t, program)
	const name = "attach"
	var n network
	c := client(t, p.Node(name), runtime.ContentTypeProtobuf, &n)
	board := nodefacts.NewBoard(nodefacts.Facts{})
	writer := func(what nodefacts.Field) *nodefacts.Writer {
		w, err := board.Writer(fmt.Sprint(what), what)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	volumes := writer(nodefacts.InUse)
	changed, stop := board.Watch(nodefacts.InUse)
	defer stop()
	node := nodeobject.New(nodeobject.Config{Identity: nodeobject.Identity{Name: name, Arch: "amd64", ControllerAttaches: true},
		Register: true, API: nodeobject.NodesOf(c), Every: time.Hour, Facts: writer(nodeobject.Fields), Known: noNode{},
		Status: func() v1.NodeStatus { return v1.NodeStatus{} }, Changed: wake.NewSlot(), Event: func(pod.Event) {},
		Volumes: nodeobject.Volumes{InUse: func() []v1.UniqueVolumeName { return board.Now().InUse }, Changed: changed},
		Log:     testr.New(t)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() { cancel(); running.Wait() }()
	facts, stopFacts := board.Watch(nodefacts.UID | nodefacts.ReportedInUse | nodefacts.VolumesAttached)
	defer stopFacts()
	// await returns how long it takes until the facts are so.
	await := func(what string, is func(f *nodefacts.Facts) bool) time.Duration {
		t.Helper()
		began := time.Now()
		for !is(board.Now()) {
			select {
			case <-facts:
			case <-time.After(time.Minute):
				t.Fatalf("never %s: %+v", what, board.Now())
			}
		}
		return time.Since(began)
	}
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := p.Kubectl(input, args...)
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	await("registered", func(f *nodefacts.Facts) bool { return f.UID != "" })
	realm := liveRealm(t, p, c, v1beta1.WatchChangeDetectionStrategy)
	view := realm.For(&pod.Desired{Source: pod.SourceAPI, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "user", UID: "u"}}})
	attachment := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("h1"+"a.example"+name)))
	// attachments awaits a state of the VolumeAttachment.
	attachments := func(what string, is func(o *storage.VolumeAttachment, err error) bool) {
		t.Helper()
		for {
			o, err := view.VolumeAttachment(t.Context(), attachment)
			if is(o, err) {
				return
			}
			select {
			case <-realm.Changed.Woken():
				realm.Changed.Drain()
			case <-time.After(time.Minute):
				t.Fatalf("never %s: %v, %v", what, o, err)
			}
		}
	}
	attachments("forbidden before it is there", func(_ *storage.VolumeAttachment, err error) bool {
		return object.IsUnknown(err) && strings.Contains(err.Error(), "no relationship found")
	})
	kubectl(claimed("data", "csi: {driver: a.example, volumeHandle: h1}", "")+podNamed("user", spec("[serve]", noToken,
		"nodeName: "+name+", volumes: [{name: d, persistentVolumeClaim: {claimName: data}}],")), "apply", "-f", "-")
	kubectl("", "wait", "--for=create", "volumeattachment/"+attachment, "--timeout=60s")
	attachments("there", func(o *storage.VolumeAttachment, err error) bool { return err == nil && !o.Status.Attached })

	const unique = v1.UniqueVolumeName("kubernetes.io/csi/a.example^h1")
	volumes.Set(func(f *nodefacts.Facts) { f.InUse = []v1.UniqueVolumeName{unique} })
	reported := await("reported", func(f *nodefacts.Facts) bool { return len(f.ReportedInUse) == 1 })
	if board.Now().Attached(unique) {
		t.Error("attached before the driver has attached it")
	}
	kubectl("", "patch", "volumeattachment", attachment, "--subresource=status", "--type=merge",
		"-p", `{"status": {"attached": true, "attachmentMetadata": {"path": "/dev/x"}}}`)
	await("attached", func(f *nodefacts.Facts) bool { return f.Attached(unique) })
	attachments("attached", func(o *storage.VolumeAttachment, err error) bool {
		return err == nil && o.Status.Attached && o.Status.AttachmentMetadata["path"] == "/dev/x"
	})

	kubectl("", "delete", "pod", "user", "--force", "--grace-period=0")
	time.Sleep(2 * time.Second) // the controller would detach it after 100 ms
	if at := kubectl("", "get", "volumeattachment", attachment, "-o", "jsonpath={.metadata.deletionTimestamp}"); at != "" {
		t.Errorf("deleted at %s, while in use", at)
	}
	if !board.Now().Attached(unique) {
		t.Error("it isn't attached while in use")
	}
	volumes.Set(func(f *nodefacts.Facts) { f.InUse = []v1.UniqueVolumeName{} })
	removed := await("removed", func(f *nodefacts.Facts) bool { return len(f.ReportedInUse) == 0 })
	if board.Now().Attached(unique) {
		t.Error("it counts as attached when it isn't in use")
	}
	kubectl("", "wait", "--for=delete", "volumeattachment/"+attachment, "--timeout=60s")
	await("detached", func(f *nodefacts.Facts) bool { return len(f.VolumesAttached) == 0 })
	t.Logf("reported after %v, removed after %v", reported, removed)
	calls := map[string]int{}
	for _, call := range p.Calls() {
		calls[call.Verb+" "+call.Resource]++
	}
	if calls["get nodes"] > 1 || calls["patch nodes/status"] > 4 {
		t.Errorf("the node's calls are %v", calls)
	}
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}
