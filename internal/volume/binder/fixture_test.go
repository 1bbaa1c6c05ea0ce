package binder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/manifest"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// errorer is what ends a test: testing's or rapid's.
type errorer interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// node is a node with its manifests, and a binder that can be started again.
type node struct {
	dir string
	*binder.Binder

	mu      sync.Mutex
	defined map[object.Key]*object.Desired
	// refused are objects whose manifests have mistakes, and where they are.
	refused map[object.Key]string
	synced  bool
	events  []string
	// listed, if there is one, is called each time after volumes were listed.
	listed func()
}

// listing reports each list of volumes.
type listing struct {
	*object.Local
	n *node
}

func (l listing) PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error) {
	list, err := l.Local.PersistentVolumes(ctx)
	if l.n.listed != nil {
		l.n.listed()
	}
	return list, err
}

func (n *node) listing() listing { return listing{object.NewLocal(n.current), n} }

func newNode(dir string) *node {
	n := &node{dir: dir, defined: map[object.Key]*object.Desired{}, synced: true}
	n.Binder = n.new()
	return n
}

func start(t *testing.T) *node {
	t.Helper()
	n := newNode(filepath.Join(t.TempDir(), "checkpoints", "volumes"))
	n.restart(t)
	return n
}

func (n *node) new() *binder.Binder {
	return binder.New(binder.Config{
		Dir: n.dir, Objects: n.listing(), Recorder: n,
		NodeLabels: func() map[string]string {
			return map[string]string{v1.LabelHostname: "node1", "disk": "ssd", ebsZone: "zone-a"}
		},
	}, logr.Discard())
}

// restart has the next binder take over, as that of an agent that was killed.
func (n *node) restart(t errorer) {
	t.Helper()
	n.Binder = n.new()
	if err := n.Restore(); err != nil {
		t.Fatal(err)
	}
}

func (n *node) current() *object.Set {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*object.Desired, 0, len(n.defined))
	for _, d := range n.defined {
		list = append(list, d)
	}
	return object.NewSet(list, n.synced).WithRefused(n.refused)
}

func (n *node) Event(p *v1.Pod, e pod.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s %s: %s", p.Name, e.Reason, e.Message))
}

// define takes the objects of a manifest, as the agent does.
func (n *node) define(t errorer, text string) {
	t.Helper()
	for _, d := range manifest.Decode([]byte(text)) {
		if d.Object == nil || len(d.Errors) > 0 {
			t.Fatalf("%s: %v", text, d.Errors)
		}
		reader.CleanObject(d.Object)
		reader.ObjectIdentity{Node: "node1"}.Apply(d.Object)
		spec.SetObjectDefaults(d.Object)
		if errs := spec.ValidateObject(d.Object); len(errs) > 0 {
			t.Fatalf("%s: %v", text, errs.ToAggregate())
		}
		one := object.NewDesired(d.Object, pod.SourceFile, "x.yaml")
		n.mu.Lock()
		n.defined[one.Key()] = one
		n.mu.Unlock()
	}
}

func claimKey(name string) object.Key {
	return object.Key{Kind: object.PersistentVolumeClaim, Namespace: "default", Name: name}
}

func volumeKey(name string) object.Key {
	return object.Key{Kind: object.PersistentVolume, Name: name}
}

func (n *node) remove(keys ...object.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range keys {
		delete(n.defined, k)
	}
}

// refuse has the manifest of these have a mistake, and no others.
func (n *node) refuse(keys ...object.Key) {
	n.remove(keys...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = map[object.Key]string{}
	for _, k := range keys {
		n.refused[k] = "/etc/m/x.yaml"
	}
}

func (n *node) sync(synced bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced = synced
}

// pv is the manifest of a volume; more are fields of its spec beyond the usual.
func pv(name, size string, more ...string) string {
	spec := append([]string{"hostPath: {path: /mnt/" + name + "}", "capacity: {storage: " + size + "}"}, more...)
	return "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + ", labels: {name: " + name + "}}\nspec: {" + unlessGiven(spec, "accessModes: [ReadWriteOnce]") + "}\n"
}

// pvc is the manifest of a claim.
func pvc(name, size string, more ...string) string {
	spec := append([]string{"resources: {requests: {storage: " + size + "}}"}, more...)
	return "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\nspec: {" + unlessGiven(spec, "accessModes: [ReadWriteOnce]") + "}\n"
}

func unlessGiven(spec []string, usual string) string {
	field, _, _ := strings.Cut(usual, ":")
	if !slices.ContainsFunc(spec, func(s string) bool { return strings.HasPrefix(s, field+":") }) {
		spec = append(spec, usual)
	}
	return strings.Join(spec, ", ")
}

// podOf returns a pod that is valid.
func podOf(t errorer, name, uid, volumes string) *v1.Pod {
	t.Helper()
	docs := manifest.Decode(fmt.Appendf(nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec: {containers: [{name: c, image: i}], volumes: [%s]}\n", name, volumes))
	if len(docs) != 1 || docs[0].Pod == nil {
		t.Fatalf("%s: %+v", volumes, docs)
	}
	p := docs[0].Pod
	p.UID = types.UID(uid)
	spec.SetDefaults(p)
	if errs := spec.Validate(p); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func user(t errorer, claim string) *v1.Pod {
	t.Helper()
	return userOf(t, "uid-user", claim)
}

// userOf returns the pod of this UID, which uses a claim.
func userOf(t errorer, uid, claim string) *v1.Pod {
	t.Helper()
	return podOf(t, "user", uid, "{name: v, persistentVolumeClaim: {claimName: "+claim+"}}")
}

// bind binds the only volume of a pod, and returns the name of the PersistentVolume.
func (n *node) bind(t errorer, p *v1.Pod) (string, error) {
	t.Helper()
	c, pv, err := n.Bind(t.Context(), p, n.listing(), &p.Spec.Volumes[0])
	if err != nil {
		if c != nil || pv != nil {
			t.Fatalf("beside the error %v: %v, %v", err, c, pv)
		}
		return "", err
	}
	d := n.current().Get(volumeKey(pv.Name))
	if d == nil || d.Object() != pv {
		t.Fatalf("%s isn't what the manifest defines", pv.Name)
	}
	return pv.Name, nil
}

// has wants a pod's claim to be bound to a volume.
func (n *node) has(t errorer, p *v1.Pod, want string) {
	t.Helper()
	if got, err := n.bind(t, p); err != nil || got != want {
		t.Fatalf("bound to %q, %v; want %s", got, err, want)
	}
}

// waits wants a pod to wait for its claim, and to be told all of these.
func (n *node) waits(t errorer, p *v1.Pod, claim string, why ...string) {
	t.Helper()
	got, err := n.bind(t, p)
	var awaits *volume.AwaitsError
	if !errors.As(err, &awaits) || awaits.Object.String() != "PersistentVolumeClaim default/"+claim {
		t.Fatalf("bound to %q, %v; want to wait for the claim", got, err)
	}
	for _, w := range why {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("told %q, want %q in it", err, w)
		}
	}
}

// gone says that a pod is gone.
func (n *node) gone(t errorer, p *v1.Pod) {
	t.Helper()
	if err := n.Forget(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
}

func (n *node) tidy(t errorer) {
	t.Helper()
	if err := n.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
}
