package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/clusterobjects"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

// referring is a pod, without an agent that would run it, that refers to one of each kind of objects.
const referring = `{apiVersion: v1, kind: Node, metadata: {name: objects}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: x}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: objects
  serviceAccountName: x
  containers: [{name: c, image: x}]
  volumes:
  - {name: a, configMap: {name: x}}
  - {name: b, secret: {secretName: x}}
  - {name: c, persistentVolumeClaim: {claimName: x}}
  - {name: d, projected: {sources: [{serviceAccountToken: {path: token, audience: me}}]}}
`

// TestObjects: the objects of pods are found at a real API server as they are at the one of the unit tests.
func TestObjects(t *testing.T) {
	p := plane.Start(t, program)
	do := func(input string, args ...string) {
		t.Helper()
		if out, err := p.Kubectl(input, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	do(referring, "apply", "-f", "-")
	uid, err := p.Kubectl("", "get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	var n network
	c := client(t, p.Node("objects"), runtime.ContentTypeProtobuf, &n)
	for _, strategy := range []v1beta1.ResourceChangeDetectionStrategy{v1beta1.WatchChangeDetectionStrategy, v1beta1.TTLCacheChangeDetectionStrategy, v1beta1.GetChangeDetectionStrategy} {
		t.Run(string(strategy), func(t *testing.T) {
			objecttest.RunLive(t, func(t *testing.T) *objecttest.Realm {
				r := liveRealm(t, p, c, strategy)
				r.UID = types.UID(uid)
				for _, k := range object.Kinds() { // nothing is there at first
					if !r.Lacks(k) && k != object.Service {
						r.Remove(object.Key{Kind: k, Namespace: "default", Name: "x"})
					}
				}
				return r
			})
		})
	}
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// liveRealm is a finder at a control plane.
func liveRealm(t *testing.T, p *plane.Plane, c *apiclient.Client, strategy v1beta1.ResourceChangeDetectionStrategy) *objecttest.Realm {
	changed := wake.NewKeyed[pod.Object]()
	f := clusterobjects.New(clusterobjects.Config{API: c, Strategy: strategy, TTL: func() time.Duration { return 0 }, Period: time.Second,
		Changed:     func(o ...pod.Object) { changed.Wake(o...) },
		StoredToken: func(types.UID, string, string) (string, error) { return "", errors.New("there is none") },
		Known:       lastknown.New(filepath.Join(t.TempDir(), "known"), "", c),
		Others:      objecttest.View(object.NewSet(nil, true))})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	do := func(input string, args ...string) {
		t.Helper()
		if out, err := p.Kubectl(input, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	return &objecttest.Realm{Finder: f, Source: pod.SourceAPI, Other: pod.SourceFile, Changed: changed, Tokens: time.Hour,
		Asked: func(k object.Kind) bool { return k == object.ServiceAccount || k == object.PersistentVolumeClaim },
		// A node may only get one that is bound to a claim of its pods, or attached to it.
		Lacks: func(k object.Kind) bool { return k == object.PersistentVolume || k == object.VolumeAttachment },
		Put: func(o object.Object) {
			o.SetResourceVersion("")
			switch o := o.(type) {
			case *nodev1.RuntimeClass:
				o.Handler = "x"
			case *v1.PersistentVolumeClaim:
				o.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
				o.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
			}
			o.GetObjectKind().SetGroupVersionKind(object.KindOf(o).GroupVersionKind())
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			do(string(text), "apply", "-f", "-")
		},
		Remove: func(k object.Key) {
			of := strings.ToLower(string(k.Kind)) + "/" + k.Name
			do("", "delete", of, "--ignore-not-found", "--wait=false")
			if k.Kind == object.PersistentVolumeClaim { // a pod uses it
				_, _ = p.Kubectl("", "patch", of, "--type=merge", "-p", `{"metadata": {"finalizers": null}}`) // it may be gone
			}
		}}
}
