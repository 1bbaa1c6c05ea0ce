// Package cluster_test runs parts of the agent against a real control plane.
package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject/nodeobjecttest"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject/podobjecttest"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

const program = "../../bin/controlplane"

// network can be cut.
type network struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("the network is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, kind, address)
	n.conns = append(n.conns, conn)
	return conn, err
}

func (n *network) cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

// client runs a client until the end of the test.
func client(t *testing.T, kubeconfig, contentType string, n *network) *apiclient.Client {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{Kubeconfig: kubeconfig, Files: filewatch.New(filewatch.Every, testr.New(t)), ContentType: contentType, UserAgent: apiclient.UserAgent("v1.36.3-deckhand", "0123456789"),
		LeaseDuration: 40 * time.Second, Calls: apiclient.Rate{PerSecond: 50, Burst: 100}, Dial: n.dial,
		Meter: metrics.New(metrics.Info{Build: buildinfo.Get()}).APIClient, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// admin runs an administrator's client, without limits of its rate, until the end of the test.
func admin(t *testing.T, p *plane.Plane) *apiclient.Client {
	t.Helper()
	c := client(t, p.Admin(), runtime.ContentTypeProtobuf, &network{})
	c.SetRates(apiclient.Rate{}, apiclient.Rate{})
	return c
}

// seen is what a watch of one node tells.
type seen struct{ told chan string }

// Listed tells what is there as if it had changed: after a connection was lost all may be listed again, or the watch go on.
func (s *seen) Listed(all apiclient.List) {
	if len(all.Objects) == 0 {
		s.told <- "listed none"
	}
	for _, o := range all.Objects {
		s.Changed(watch.Modified, o)
	}
}

func (s *seen) Malformed(m apiclient.Malformed) { s.told <- "malformed " + m.Name }

func (s *seen) Changed(kind watch.EventType, o runtime.Object) {
	s.told <- string(kind) + " " + o.(*v1.Node).Labels["step"]
}

func (s *seen) Away(err error) {
	if err == nil {
		s.told <- "back"
		return
	}
	s.told <- "away"
}

func (s *seen) await(t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case got := <-s.told:
			if got == want {
				return
			}
			if got != "back" && got != "away" && !strings.HasPrefix(got, "MODIFIED") { // the controllers modify it, too
				t.Fatalf("told %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never told %q", want)
		}
	}
}

// TestClient: the client does with a real API server what a node does, and nothing that a node may not.
func TestClient(t *testing.T) {
	p := plane.Start(t, program)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		name := "n-" + contentType[len(contentType)-4:]
		ctx, stop := context.WithCancel(t.Context())
		var n network
		c := client(t, p.Node(name), contentType, &n)
		s := &seen{make(chan string, 1000)}
		var watching sync.WaitGroup
		watching.Go(func() {
			c.Watch(ctx, apiclient.Nodes, "", apiclient.Selectors{Fields: "metadata.name=" + name}, s)
		})
		s.await(t, "listed none")
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Get(ctx, apiclient.Calls, apiclient.Nodes, "", name, &v1.Node{}); !apierrors.IsNotFound(err) {
			t.Fatalf("get: %v", err)
		}
		if err := c.Create(ctx, apiclient.Calls, apiclient.Nodes, "", node, node); err != nil || node.UID == "" {
			t.Fatalf("create: %v", err)
		}
		s.await(t, "ADDED ")
		if err := c.Create(ctx, apiclient.Calls, apiclient.Nodes, "", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, &v1.Node{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create again: %v", err)
		}
		if err := c.Patch(ctx, apiclient.Calls, apiclient.Nodes, "", name, types.StrategicMergePatchType, []byte(`{"status":{"capacity":{"pods":"7"}}}`), node, "status"); err != nil || node.Status.Capacity.Pods().Value() != 7 {
			t.Errorf("patch: %v, %v", node.Status.Capacity, err)
		}
		lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1.NamespaceNodeLease}}
		if err := c.Get(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, name, lease.DeepCopy()); !apierrors.IsNotFound(err) {
			t.Errorf("get lease: %v", err)
		}
		if err := c.Create(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, lease, lease); err != nil {
			t.Errorf("create lease: %v", err)
		}
		stale := lease.DeepCopy()
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		if err := c.Update(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, lease, lease); err != nil {
			t.Errorf("update lease: %v", err)
		}
		if err := c.Update(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, stale, stale); !apierrors.IsConflict(err) {
			t.Errorf("update an old lease: %v", err)
		}
		// What changes while the network is cut is seen when it is back.
		n.cut(true)
		if _, err := p.Kubectl("", "label", "node", name, "step=cut"); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(ctx, apiclient.Calls, apiclient.Nodes, "", name, &v1.Node{}); err == nil {
			t.Error("a cut network works")
		}
		if ok, _, err := c.Reached(); ok || err == nil {
			t.Errorf("reached: %t, %v", ok, err)
		}
		n.cut(false)
		s.await(t, "MODIFIED cut")
		if ok, _, err := c.Reached(); !ok {
			t.Errorf("reached: %v", err)
		}
		stop()
		watching.Wait()
	}
	t.Run("nodes and leases", func(t *testing.T) {
		var n network
		c := client(t, p.Node("contract"), runtime.ContentTypeProtobuf, &n)
		nodeobjecttest.Run(t, "contract", nodeobject.NodesOf(c), nodeobject.LeasesOf(c), func() {
			if out, err := p.Kubectl("", "delete", "node", "contract"); err != nil {
				t.Fatal(err, out)
			}
		})
	})
	t.Run("pods", func(t *testing.T) {
		var n network
		c := client(t, p.Node("contract"), runtime.ContentTypeProtobuf, &n)
		podobjecttest.Run(t, podobject.PodsOf(c, "contract"), func(name, finalizer string) *v1.Pod {
			finalizers := ""
			if finalizer != "" {
				finalizers = fmt.Sprintf("finalizers: [%s]", finalizer)
			}
			out, err := p.Kubectl(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, %s}, spec: {nodeName: contract, automountServiceAccountToken: false, containers: [{name: c, image: x}]}}", name, finalizers),
				"create", "-f", "-", "-o", "json")
			var pod v1.Pod
			if err := errors.Join(err, json.Unmarshal([]byte(out), &pod)); err != nil {
				t.Fatal(err, out)
			}
			return &pod
		})
		uid, err := p.Kubectl("", "get", "node", "contract", "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			t.Fatal(err)
		}
		podobjecttest.RunMirror(t, podobject.PodsOf(c, "contract"), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mirror", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "hash"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "contract", UID: types.UID(uid), Controller: ptr.To(true)}}},
			Spec: v1.PodSpec{NodeName: "contract", Containers: []v1.Container{{Name: "c", Image: "x"}}}})
	})
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
	t.Run("refused", func(t *testing.T) { refused(t, p) })
}

// refused tries what the server doesn't accept.
func refused(t *testing.T, p *plane.Plane) {
	good, err := os.ReadFile(p.Node("other"))
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token.kubeconfig")
	before, _, found := strings.Cut(string(good), "users:")
	if !found {
		t.Fatalf("kubeconfig %s", good)
	}
	if err := os.WriteFile(token, []byte(before+"users: [{name: test, user: {token: abc}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kubeconfig, want := range map[string][]string{
		p.Kubeconfig(p.IssueUntil(time.Now().Add(-time.Minute), "old", "system:node:old", "system:nodes")): {"users[test].user of ", "doesn't have credentials that the server accepts", "users[test].user.client-certificate has expired at "},
		token:             {"Unauthorized", "users[test].user of ", "doesn't have credentials that the server accepts"},
		p.Node("another"): {"node 'another' cannot read 'old'", "forbidden"},
	} {
		var n network
		c := client(t, kubeconfig, runtime.ContentTypeProtobuf, &n)
		err := c.Get(t.Context(), apiclient.Calls, apiclient.Nodes, "", "old", &v1.Node{})
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v\ndoesn't say %q", err, w)
			}
		}
		if again, _ := apiclient.Retry(err, 0); !again {
			t.Errorf("%v isn't tried again", err)
		}
	}
}
