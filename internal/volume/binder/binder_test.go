package binder_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

func TestAMissingClaimIsNotFound(t *testing.T) {
	n := start(t)
	if _, err := n.bind(t, user(t, "data")); !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
}

// TestAClaimOfAnotherRealm: a pod of an API server doesn't get what a manifest's claim of the same name is bound to.
func TestAClaimOfAnotherRealm(t *testing.T) {
	n := start(t)
	n.define(t, pv("disk", "5Gi")+pvc("data", "1Gi"))
	n.has(t, user(t, "data"), "disk")
	p := user(t, "data")
	var awaits *volume.AwaitsError
	if _, pv, err := n.Bind(t.Context(), p, n.listing().For(&pod.Desired{Pod: p, Source: pod.SourceAPI}), &p.Spec.Volumes[0]); !errors.As(err, &awaits) || pv != nil {
		t.Errorf("bound to %v, %v", pv, err)
	}
}

// TestAClaimStaysWithItsVolume whatever comes: a better volume, an edit, another label, a restart.
func TestAClaimStaysWithItsVolume(t *testing.T) {
	n := start(t)
	n.define(t, pv("b", "5Gi")+pvc("data", "1Gi"))
	n.has(t, user(t, "data"), "b")
	n.define(t, pv("a", "1Gi")+pv("reserved", "1Gi", "claimRef: {namespace: default, name: data}"))
	n.has(t, user(t, "data"), "b")
	n.define(t, pvc("data", "50Gi", "storageClassName: fast", "selector: {matchLabels: {x: z}}"))
	n.restart(t)
	n.has(t, user(t, "data"), "b")
	n.define(t, pvc("other", "1Gi"))
	n.has(t, user(t, "other"), "a")
	n.waits(t, user(t, "third"), "third")
}

func TestEditsThatContradictABindingAreReported(t *testing.T) {
	const stays = "a claim stays with its volume"
	for name, test := range map[string]struct {
		edit string
		told []string
	}{
		"another volume":        {pv("b", "1Gi") + pvc("data", "1Gi", "volumeName: b"), []string{"bound to PersistentVolume a, but asks for b now (spec.volumeName)", stays}},
		"for another claim":     {pv("a", "1Gi", "claimRef: {namespace: default, name: other}"), []string{"bound to PersistentVolume a, which is for PersistentVolumeClaim default/other", stays}},
		"a device":              {pvc("data", "1Gi", "volumeMode: Block"), []string{"PersistentVolume a: has volumeMode Filesystem, and the claim Block", stays}},
		"moved to another node": {pv("a", "1Gi", fmt.Sprintf(hostname, "node2")), []string{"PersistentVolume a: can't be used on this node"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
			n.has(t, user(t, "data"), "a")
			n.define(t, test.edit)
			n.waits(t, user(t, "data"), "data", test.told...)
			n.define(t, pvc("other", "1Gi", "volumeName: a"))
			n.waits(t, user(t, "other"), "other", "no PersistentVolume fits: a ")
			n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
			n.has(t, user(t, "data"), "a")
		})
	}
}

func TestALostVolumeIsWaitedFor(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.remove(volumeKey("a"))
	n.define(t, pv("b", "1Gi"))
	n.tidy(t)
	n.restart(t)
	n.waits(t, user(t, "data"), "data", "it is lost: PersistentVolume a")
	n.define(t, pv("a", "1Gi"))
	n.has(t, user(t, "data"), "a")

	n.remove(volumeKey("a"), claimKey("data"))
	n.gone(t, user(t, "data"))
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi", "volumeName: b"))
	n.has(t, user(t, "data"), "b")
}

// TestAMistakeInAManifestLetsNothingGo: what it defines isn't gone.
func TestAMistakeInAManifestLetsNothingGo(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.refuse(volumeKey("a"))
	n.tidy(t)
	n.restart(t)
	n.waits(t, user(t, "data"), "data", `it is bound to PersistentVolume a: persistentvolume "a" not found (/etc/m/x.yaml defines it, but there is a mistake in that`)
	n.refuse(volumeKey("a"), claimKey("data"))
	n.gone(t, user(t, "data"))
	n.tidy(t)
	n.restart(t)
	n.waits(t, user(t, "data"), "data", `persistentvolumeclaim "data" not found in namespace "default" (/etc/m/x.yaml defines it, but there is a mistake in that`)
	n.refuse(claimKey("data"))
	n.define(t, pv("a", "1Gi"))
	n.waits(t, user(t, "other"), "other", "a is taken by PersistentVolumeClaim default/data")
	n.refuse()
	n.define(t, pvc("data", "1Gi"))
	n.has(t, user(t, "data"), "a")
}

func TestAReleasedVolumeIsKept(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.remove(claimKey("data"))
	n.gone(t, user(t, "data"))
	n.define(t, pvc("other", "1Gi"))
	n.tidy(t)
	n.restart(t)
	n.waits(t, user(t, "other"), "other", "a was released by PersistentVolumeClaim default/data, and is kept with its data", "remove its manifest for a while")

	n.define(t, pvc("data", "1Gi")) // a manifest that comes back is the same claim
	n.has(t, user(t, "data"), "a")
	n.waits(t, user(t, "other"), "other", "a is taken by PersistentVolumeClaim default/data")

	n.gone(t, user(t, "data"))
	n.remove(claimKey("data"), volumeKey("a"))
	n.waits(t, user(t, "other"), "other") // which sees that it is gone
	n.restart(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
	n.has(t, user(t, "other"), "a")
	n.waits(t, user(t, "data"), "data", "a is taken by PersistentVolumeClaim default/other")
}

// TestAClaimStaysBoundWhileAPodUsesIt: what pods have mounted isn't given to others, whatever becomes of the
// manifests and of the agent.
func TestAClaimStaysBoundWhileAPodUsesIt(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	first, second := userOf(t, "uid-1", "data"), userOf(t, "uid-2", "data")
	n.has(t, first, "a")
	n.has(t, second, "a")
	for _, left := range []*v1.Pod{first, second} {
		n.remove(claimKey("data"), volumeKey("a"))
		n.tidy(t)
		n.restart(t)
		n.tidy(t)
		n.define(t, pv("a", "1Gi"))
		n.waits(t, userOf(t, "uid-3", "other"), "other", "a was released by PersistentVolumeClaim default/data, and pods that used that before use it still")
		n.define(t, pvc("data", "1Gi")) // which comes back
		n.has(t, left, "a")
		n.remove(claimKey("data"), volumeKey("a"))
		n.gone(t, left)
	}
	n.restart(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
	n.has(t, userOf(t, "uid-3", "other"), "a")
	n.waits(t, first, "data", "a is taken by PersistentVolumeClaim default/other")
	if got := n.Pods(); !slices.Equal(got, []types.UID{"uid-3"}) {
		t.Errorf("claims are used by %v", got)
	}
}

// TestPodsWithClaims are known to a binder that comes later.
func TestPodsWithClaims(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pvc("data", "1Gi"))
	for _, p := range []*v1.Pod{userOf(t, "uid-2", "data"), podOf(t, "web", "uid-1", scratch), userOf(t, "uid-2", "data")} {
		if _, err := n.bind(t, p); err != nil {
			t.Fatal(err)
		}
	}
	n.restart(t)
	if got := n.Pods(); !slices.Equal(got, []types.UID{"uid-1", "uid-2"}) {
		t.Errorf("claims are used by %v", got)
	}
	for _, uid := range n.Pods() {
		if err := n.Forget(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Pods(); len(got) > 0 {
		t.Errorf("claims are used by %v", got)
	}
}

// TestAnEditWhileVolumesAreLookedAt: a volume that comes back with the edit that takes its claim was never gone
// together with that.
func TestAnEditWhileVolumesAreLookedAt(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.gone(t, user(t, "data"))
	n.remove(volumeKey("a"))
	n.listed = func() {
		n.define(t, pv("a", "1Gi"))
		n.remove(claimKey("data"))
	}
	n.tidy(t)
	n.listed = nil
	n.waits(t, user(t, "other"), "other", "a was released by PersistentVolumeClaim default/data, and is kept with its data")
}

// TestNothingIsLetGoBeforeAllIsKnown: what a source hasn't reported yet isn't gone.
func TestNothingIsLetGoBeforeAllIsKnown(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.define(t, pv("b", "1Gi"))
	p := podOf(t, "web", "uid-1", scratch)
	n.has(t, p, "b")
	if err := n.Forget(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	n.remove(claimKey("data"), volumeKey("a"), volumeKey("b"))
	n.sync(false)
	n.tidy(t)
	_, err := n.bind(t, user(t, "data"))
	if !object.IsUnknown(err) {
		t.Errorf("a claim that isn't known: %v", err)
	}
	n.define(t, pvc("data", "1Gi"))
	if _, err := n.bind(t, user(t, "data")); !object.IsUnknown(err) {
		t.Errorf("a volume that isn't known: %v", err)
	}
	if _, err := n.bind(t, user(t, "other")); !object.IsUnknown(err) {
		t.Errorf("volumes that aren't all known: %v", err)
	}
	n.define(t, pv("a", "1Gi"))
	n.has(t, user(t, "data"), "a") // for which the others aren't needed
	n.define(t, pv("b", "1Gi"))
	n.sync(true)
	n.has(t, user(t, "data"), "a")
	n.waits(t, user(t, "other"), "other", "b was released")
}

func TestDataIsKeptWhateverThePolicySays(t *testing.T) {
	n := start(t)
	for _, policy := range []string{"Retain", "Delete", "Recycle"} {
		name := strings.ToLower(policy)
		n.define(t, pv(name, "1Gi", "persistentVolumeReclaimPolicy: "+policy)+pvc(name, "1Gi", "volumeName: "+name))
		for range 2 { // told once
			n.has(t, user(t, name), name)
		}
	}
	want := func(policy string) string {
		name := strings.ToLower(policy)
		return "user VolumeIsRetained: PersistentVolume " + name + ", which PersistentVolumeClaim default/" + name + " is bound to, has the reclaim policy " + policy +
			", but nothing deletes data here: it is kept as Retain says"
	}
	if !slices.Equal(n.events, []string{want("Delete"), want("Recycle")}) {
		t.Errorf("told %q", n.events)
	}
}

const scratch = "{name: scratch, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}"

func TestEphemeralClaims(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "2Gi"))
	first, second := podOf(t, "web", "uid-1", scratch), podOf(t, "web", "uid-2", scratch)
	c, _, err := n.Bind(t.Context(), first, n.listing(), &first.Spec.Volumes[0])
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "default" || c.Name != "web-scratch" || c.UID == "" || c.Kind != "PersistentVolumeClaim" || c.Labels["a"] != "b" || c.Annotations["c"] != "d" ||
		c.Spec.Resources.Requests.Storage().String() != "1Gi" || !metav1.IsControlledBy(c, first) || metav1.IsControlledBy(c, second) {
		t.Errorf("the claim is %+v", c)
	}
	n.restart(t)
	again, _, err := n.Bind(t.Context(), first, n.listing(), &first.Spec.Volumes[0])
	if err != nil || again.UID != c.UID {
		t.Errorf("claim %s, then %s, %v", c.UID, again.UID, err)
	}
	n.has(t, first, "a")

	if err := n.Forget(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	n.has(t, second, "b") // a pod of the same name has a claim of its own
	n.define(t, pvc("data", "1Gi"))
	n.waits(t, user(t, "data"), "data", "a was released by PersistentVolumeClaim default/web-scratch", "b is taken by PersistentVolumeClaim default/web-scratch")
	n.remove(volumeKey("a"), volumeKey("b"))
	n.tidy(t)
	n.define(t, pv("a", "1Gi")+pv("b", "2Gi"))
	n.has(t, second, "b")
	n.has(t, user(t, "data"), "a")
	for _, uid := range []types.UID{"uid-1", "never seen", ""} {
		if err := n.Forget(t.Context(), uid); err != nil {
			t.Errorf("forget %q: %v", uid, err)
		}
	}
	n.has(t, user(t, "data"), "a")
	n.has(t, second, "b")
}

// TestAPodThatComesBackHasAnotherClaim: the UID of a static pod is made of what its manifest says.
func TestAPodThatComesBackHasAnotherClaim(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "1Gi"))
	p := podOf(t, "web", "uid-1", scratch)
	for _, volume := range []string{"a", "b"} {
		n.has(t, p, volume)
		if err := n.Forget(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		n.restart(t)
	}
	n.waits(t, p, "web-scratch", "a was released by PersistentVolumeClaim default/web-scratch", "b was released")
}

// TestAClaimThatIsNotThePodsOwnIsNotUsed: KEP-1698.
func TestAClaimThatIsNotThePodsOwnIsNotUsed(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pvc("web-scratch", "1Gi"))
	p := podOf(t, "web", "uid-1", scratch)
	n.waits(t, p, "web-scratch", "a manifest defines a claim of this name, which isn't the one of the pod's ephemeral volume scratch")
	n.remove(claimKey("web-scratch"))
	n.has(t, p, "a")
	n.define(t, pvc("web-scratch", "1Gi")) // too late
	n.has(t, p, "a")
	n.waits(t, user(t, "web-scratch"), "web-scratch", "the name is also that of an ephemeral volume's claim, of the pod with UID uid-1")
	if err := n.Forget(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.has(t, user(t, "web-scratch"), "b")
}

func TestAnEphemeralClaimFromNothingIsRefusedForGood(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi"))
	p := podOf(t, "web", "uid-1", strings.Replace(scratch, "spec: {", "spec: {dataSource: {kind: PersistentVolumeClaim, name: x}, ", 1))
	if _, err := n.bind(t, p); !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	if _, err := n.bind(t, podOf(t, "web", "u", "{name: v, emptyDir: {}}")); err == nil {
		t.Error("an emptyDir has a claim")
	}
}

// TestManyAtOnce has many pods with claims of their own, and some with a claim in common, bound
// at the same time.
func TestManyAtOnce(t *testing.T) {
	const claims, users = 20, 3
	n := start(t)
	for i := range claims {
		n.define(t, pv(fmt.Sprint("v", i), "1Gi")+pvc(fmt.Sprint("c", i), "1Gi"))
	}
	pods := make([]*v1.Pod, claims)
	for i := range pods {
		pods[i] = user(t, fmt.Sprint("c", i))
	}
	var mu sync.Mutex
	got := map[string]string{} // claims by volume
	var wg sync.WaitGroup
	for i := range claims * users {
		wg.Go(func() {
			p := pods[i%claims]
			c, pv, err := n.Bind(t.Context(), p, n.listing(), &p.Spec.Volumes[0])
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other := got[pv.Name]; other != "" && other != c.Name {
				t.Errorf("%s has claims %s and %s", pv.Name, other, c.Name)
			}
			got[pv.Name] = c.Name
		})
	}
	wg.Wait()
	if len(got) != claims {
		t.Errorf("%d volumes are bound, want %d", len(got), claims)
	}
}

// TestManifestsThatComeBackTogether: a file that holds claims, volumes and pods is moved away, and back.
func TestManifestsThatComeBackTogether(t *testing.T) {
	n := start(t)
	all := func() { n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pvc("one", "1Gi")+pvc("two", "1Gi")) }
	all()
	one, two, three := userOf(t, "uid-1", "one"), userOf(t, "uid-2", "two"), userOf(t, "uid-3", "three")
	n.has(t, one, "a")
	n.has(t, two, "b")
	for range 2 {
		n.gone(t, one)
		n.gone(t, two)
		n.remove(volumeKey("a"), volumeKey("b"), claimKey("one"), claimKey("two"))
		n.tidy(t)
		n.restart(t)
		all()
		n.define(t, pv("c", "2Gi")+pvc("three", "1Gi"))
		n.has(t, three, "c") // rather than what others had
		n.has(t, two, "b")   // in whatever order they come
		n.has(t, one, "a")
	}
	n.gone(t, two)
	n.remove(volumeKey("b"), claimKey("two"))
	n.tidy(t)
	n.define(t, pv("b", "1Gi")+pvc("four", "1Gi"))
	n.has(t, userOf(t, "uid-4", "four"), "b") // which is anybody's all the same
	n.define(t, pv("d", "1Gi")+pvc("two", "1Gi"))
	n.has(t, two, "d")

	again := func(volumes, claim string) {
		n.gone(t, two)
		n.remove(volumeKey("d"), volumeKey("e"), claimKey("two"))
		n.tidy(t)
		n.define(t, volumes+claim)
	}
	both := pv("d", "1Gi") + pv("e", "1Gi")
	again(both, pvc("two", "1Gi", "volumeName: e"))
	n.has(t, two, "e")
	again(both, pvc("two", "1Gi"))
	n.has(t, two, "e") // what it had last counts
}
