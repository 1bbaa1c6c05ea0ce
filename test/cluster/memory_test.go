package cluster_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// memory: what the agent keeps of objects that pods refer to, and for how long.
func memory(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "")
	// The garbage collector writes over what it frees: what is found in memory is in use.
	r.StartAs(node.Life{Env: []string{"GODEBUG=clobberfree=1"}})
	r.created()
	r.is(v1.ConditionTrue)
	for name, test := range map[string]func(*rig, *testing.T){"a Secret": (*rig).secretGoes, "large objects": (*rig).largeObjects, "2,000 Services": (*rig).manyServices} {
		t.Run(name, func(t *testing.T) {
			test(r.with(t), t)
			r.kubectl("delete", "pod", "--all", "--timeout=60s")
		})
	}
}

// secretGoes: nothing of a Secret is in the agent's memory any more soon after the last pod that used it has gone.
func (r *rig) secretGoes(t *testing.T) {
	value := random(t, 24)
	env := spec("[serve], env: [{name: PASSING, valueFrom: {secretKeyRef: {name: passing, key: k}}}], volumeMounts: [{name: v, mountPath: /v}]", "volumes: [{name: v, secret: {secretName: passing}}],")
	r.apply(secret("passing", value) + podNamed("user", env) + podNamed("other", spec("[serve]")))
	r.podReady("user", "other")
	r.comes(r.inVolume("user", "secret", "v", "k"), value)
	if r.inMemory(t, value) == 0 {
		t.Fatal("it isn't found while it is used: the search finds nothing")
	}
	r.kubectl("delete", "pod", "user", "--timeout=60s")
	r.Eventually("nothing of the pod is left", func() error { return r.gone("user") })
	r.apply(podNamed("next", spec("[serve]"))) // has other values put into buffers that are used again and again
	r.podReady("next")
	r.Eventually("nothing of the Secret is left", func() error {
		if n := r.inMemory(t, value); n > 0 {
			return fmt.Errorf("found %d times", n)
		}
		return nil
	})
}

func random(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// inMemory is how often the agent has a text in its memory, as it is or as JSON has bytes, after a collection of garbage.
func (r *rig) inMemory(t *testing.T, text string) (count int) {
	t.Helper()
	for range 2 { // what pools have goes with the second
		r.kubectl("get", "--raw", fmt.Sprintf("/api/v1/nodes/%s:%d/proxy/debug/pprof/heap?gc=1", node.Name, r.Port(2)))
	}
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", r.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", r.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var rights string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); n != 3 || !strings.HasPrefix(rights, "rw") {
			continue
		}
		const part = 1 << 20
		buf := make([]byte, part+len(encoded)) // parts overlap
		for at := from; at < to; at += part {
			n, err := memory.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
			if err != nil && err != io.EOF {
				break // reserved
			}
			for _, what := range []string{text, encoded} {
				count += bytes.Count(buf[:n], []byte(what))
			}
		}
	}
	return count
}

// largeObjects: objects as large as there can be reach volumes, as they are and as they become.
func (r *rig) largeObjects(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	for round := range 2 {
		text := random(t, size/2)
		file := filepath.Join(dir, "k")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		verb := "create"
		if round > 0 {
			verb = "replace"
		}
		for _, kind := range []string{"configmap", "secret generic"} {
			object := r.kubectl(append(append([]string{"create"}, strings.Fields(kind)...), "large", "--from-file="+file, "--dry-run=client", "-o", "yaml")...)
			if out, err := r.p.Kubectl(object, verb, "-f", "-"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		if round == 0 {
			r.apply(podNamed("large", spec("[serve]", "volumes: [{name: c, configMap: {name: large}}, {name: s, secret: {secretName: large}}],")))
			r.podReady("large")
		}
		for _, plugin := range []string{"configmap", "secret"} {
			path := r.inVolume("large", plugin, plugin[:1], "k")
			r.Eventually(path+" is whole", func() error {
				if got, err := os.ReadFile(path); err != nil || string(got) != text {
					return fmt.Errorf("%d bytes, %v", len(got), err)
				}
				return nil
			})
		}
	}
	if w := r.warnings("large"); w != "" {
		t.Errorf("warnings: %s", w)
	}
}

// manyServices: of the Services of a cluster the agent keeps what environments need, by one watch.
func (r *rig) manyServices(t *testing.T) {
	const namespaces, each = 50, 40
	admin := admin(t, r.p)
	r.apply(podNamed("first", spec("[serve]", "enableServiceLinks: false, hostNetwork: true,")))
	r.podReady("first")
	before := r.rss(t)
	var all sync.WaitGroup
	var names []string
	var manifests strings.Builder
	for i := range namespaces {
		names = append(names, fmt.Sprint("services", i))
		fmt.Fprintf(&manifests, "{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n---\n", names[i])
	}
	r.apply(manifests.String())
	for _, namespace := range names {
		all.Go(func() {
			for k := range each {
				s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("service-", k), Namespace: namespace, Labels: map[string]string{"app": "many", "tier": "back"}},
					Spec: v1.ServiceSpec{Selector: map[string]string{"app": "many"}, Ports: []v1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}}}
				if err := admin.Create(t.Context(), apiclient.Calls, apiclient.Services, namespace, s, &v1.Service{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, from := r.calls(0)
	r.apply(podNamed("links", spec("[env]", "restartPolicy: Never,")))
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/links", "--timeout=60s")
	r.apply(podNamed("holds", spec("[serve]")))
	r.podReady("holds")
	after := r.rss(t)
	t.Logf("with 1 pod and %d Services in %d namespaces the agent has %d KiB, %d KiB before it knew them", namespaces*each, namespaces, after>>10, before>>10)
	if count, _ := r.calls(from); count["list services"] > 2 { // one for each pod, if they don't overlap
		t.Errorf("calls %v", count)
	}
	if out, _ := r.Deckhand("logs", "links"); !strings.Contains(out, "KUBERNETES_SERVICE_HOST=10.96.0.1") || strings.Contains(out, "SERVICE_1_") {
		t.Errorf("environment %s", out)
	}
	if after > before+16<<20 {
		t.Errorf("the agent grew from %d to %d bytes", before, after)
	}
	r.kubectl(append([]string{"delete", "namespace", "--wait=false"}, names...)...)
}

// rss is the agent's resident memory after a collection of garbage.
func (r *rig) rss(t *testing.T) int64 {
	t.Helper()
	r.kubectl("get", "--raw", fmt.Sprintf("/api/v1/nodes/%s:%d/proxy/debug/pprof/heap?gc=1", node.Name, r.Port(2)))
	memory, err := report.MemoryOf(r.PID())
	if err != nil {
		t.Fatal(err)
	}
	return memory.RSS
}
