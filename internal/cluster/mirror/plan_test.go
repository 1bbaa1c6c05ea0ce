package mirror

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

var us = owner{"n1", "node-uid"}

func staticPod(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-n1", UID: types.UID(hash), Generation: 1, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{pod.AnnotationConfigHash: hash, pod.AnnotationConfigSource: "file", pod.AnnotationConfigSeen: "2026-01-02T03:04:05Z"}},
		Spec: v1.PodSpec{NodeName: "n1", Priority: ptr.To[int32](5), Containers: []v1.Container{{Name: "c", Image: "i"}}}}
}

func entry(p *v1.Pod, source pod.Source) *podstatus.Entry {
	return &podstatus.Entry{Pod: p, Report: pod.Report{Desired: &pod.Desired{Pod: p, Source: source}}}
}

func stopping(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = ptr.To(metav1.Now())
	return p
}

func mirrorWith(hash string, node types.UID, uid types.UID) *v1.Pod {
	m := mirrorOf(staticPod(hash), owner{"n1", node})
	m.UID = uid
	return m
}

func TestPlan(t *testing.T) {
	statics := func(list ...*v1.Pod) []*podstatus.Entry {
		var all []*podstatus.Entry
		for _, p := range list {
			all = append(all, entry(p, pod.SourceFile))
		}
		return all
	}
	for name, tc := range map[string]struct {
		node    types.UID
		static  []*podstatus.Entry
		mirror  *v1.Pod
		awaited bool
		want    string
	}{
		"new":                           {"node-uid", statics(staticPod("a")), nil, true, "make a"},
		"there":                         {"node-uid", statics(staticPod("a")), mirrorWith("a", "node-uid", "m"), true, ""},
		"the node isn't known":          {"", statics(staticPod("a")), nil, true, ""},
		"the node isn't known any more": {"", nil, mirrorWith("a", "node-uid", "m"), false, ""},
		"a pod of the API server":       {"node-uid", []*podstatus.Entry{entry(staticPod("a"), pod.SourceAPI)}, nil, true, ""},
		"a pod of deckhand run":         {"node-uid", []*podstatus.Entry{entry(staticPod("a"), pod.SourceRun)}, nil, true, "make a"},
		"edited":                        {"node-uid", statics(staticPod("b")), mirrorWith("a", "node-uid", "m"), true, "remove m"},
		"of another node object":        {"node-uid", statics(staticPod("a")), mirrorWith("a", "other", "m"), true, "remove m"},
		"somebody deletes it":           {"node-uid", statics(staticPod("a")), stopping(mirrorWith("a", "node-uid", "m")), true, "remove m"},
		"it ends":                       {"node-uid", statics(stopping(staticPod("a"))), mirrorWith("a", "node-uid", "m"), false, ""},
		"it ends, and somebody deletes": {"node-uid", statics(stopping(staticPod("a"))), stopping(mirrorWith("a", "node-uid", "m")), false, "remove m"},
		"it ends without one":           {"node-uid", statics(stopping(staticPod("a"))), nil, false, ""},
		"it ends for another":           {"node-uid", statics(staticPod("b"), stopping(staticPod("a"))), nil, true, "make b"},
		"it has ended":                  {"node-uid", nil, mirrorWith("a", "node-uid", "m"), false, "remove m"},
		"it is about to begin":          {"node-uid", nil, mirrorWith("a", "node-uid", "m"), true, ""},
		"a person's own":                {"node-uid", nil, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "x"}}, false, "remove x"},
	} {
		t.Run(name, func(t *testing.T) {
			var mirrors []*v1.Pod
			if tc.mirror != nil {
				mirrors = append(mirrors, tc.mirror)
			}
			got := ""
			for _, c := range plan(owner{"n1", tc.node}, tc.static, mirrors, func(string, string) bool { return tc.awaited }) {
				if c.make != nil {
					got += fmt.Sprint("make ", c.make.Annotations[v1.MirrorPodAnnotationKey])
				} else {
					got += fmt.Sprint("remove ", c.remove)
				}
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestMirrorOf: a mirror pod is what Kubernetes documents, and admits.
func TestMirrorOf(t *testing.T) {
	static := staticPod("a")
	static.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	m := mirrorOf(static, us)
	if m.UID != "" || m.Generation != 0 || m.Labels["app"] != "web" || m.Spec.NodeName != "n1" || len(m.Spec.Containers) != 1 || m.Spec.Priority != nil || m.Spec.EphemeralContainers != nil {
		t.Errorf("mirror %+v", m)
	}
	for key, want := range map[string]string{"kubernetes.io/config.mirror": "a", "kubernetes.io/config.hash": "a", "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-02T03:04:05Z"} {
		if m.Annotations[key] != want {
			t.Errorf("annotation %s: %q, want %q", key, m.Annotations[key], want)
		}
	}
	if r := m.OwnerReferences; len(r) != 1 || r[0].APIVersion != "v1" || r[0].Kind != "Node" || r[0].Name != "n1" || r[0].UID != us.uid || r[0].Controller == nil || !*r[0].Controller || r[0].BlockOwnerDeletion != nil {
		t.Errorf("owners %+v", r)
	}
	if _, there := static.Annotations[v1.MirrorPodAnnotationKey]; there || static.Spec.EphemeralContainers == nil {
		t.Error("the static pod was changed")
	}
}
