package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What a container finds in /etc/resolv.conf is what its pod's policy says.
func TestDNS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("nameserver 127.0.0.53\n")
	n := startTools(t, "clusterDNS: [10.96.0.10]", "clusterDomain: cluster.local", "resolvConf: "+file)
	resolves := func(name, want string, fields ...string) {
		t.Helper()
		cat := tool("cat", "cat /etc/resolv.conf")
		n.Write(name+".yaml", toolPod(n, name, append(fields, "restartPolicy: Never", initContainers(tool("first", "cat /etc/resolv.conf")), containers(cat))...))
		n.Await(name+" has printed its results", node.Phase(name, v1.PodSucceeded))
		for _, c := range []string{"first", "cat"} {
			if got, code := n.Deckhand("logs", name, c); code != 0 || strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s: %s has in its resolv.conf (exit %d)\n%s\nwant\n%s", name, c, code, got, want)
			}
		}
	}
	resolves("stub", "nameserver 127.0.0.53\n", "dnsPolicy: Default")
	if out, _ := n.Deckhand("events"); strings.Count(out, "UnreachableNameservers") != 1 {
		t.Errorf("the node's servers are those of pods too, and that isn't reported once:\n%s", out)
	}

	// The next pod has what the file says then.
	write("search lab.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions edns0\n")
	const cluster = "search default.svc.cluster.local svc.cluster.local cluster.local lab.example\nnameserver 10.96.0.10\noptions ndots:5\n"
	resolves("node", "search lab.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions edns0 ndots:3\n",
		"dnsPolicy: Default", "dnsConfig: {nameservers: [10.0.0.4], options: [{name: ndots, value: '3'}]}")
	n.AwaitEvent("node", "DNSConfigForming", "the applied nameserver line is: 10.0.0.1 10.0.0.2 10.0.0.3")
	resolves("cluster", cluster)
	resolves("onhost", cluster, "hostNetwork: true", "dnsPolicy: ClusterFirstWithHostNet")
	resolves("none", "search own.example\nnameserver 1.1.1.1\n", "dnsPolicy: None", "dnsConfig: {nameservers: [1.1.1.1], searches: [own.example]}")

	// Without the file no pod that needs it starts, until it is back.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Write("waits.yaml", toolPod(n, "waits", containers(tool("main", "act"))))
	n.AwaitEvent("waits", "FailedCreatePodSandBox", fmt.Sprintf("%s doesn't exist", file))
	write("nameserver 10.0.0.1\n")
	n.Await("it runs", node.Ready("waits"))
}
