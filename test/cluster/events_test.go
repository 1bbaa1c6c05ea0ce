package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// eventsAreTold: kubectl shows what happens to a node and its pods, also what happened while the API server was away.
func eventsAreTold(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "")
	r.Write("a.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: told}, spec: {containers: [{name: web, image: %s, readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}}]}}", node.Image))
	r.Write("bad.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}")
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	pod := "Pod told-" + node.Name
	r.tells("Node "+node.Name+" Starting", "Node "+node.Name+" InvalidManifest", pod+" Created", pod+" Started", pod+" Unhealthy")

	r.kubectl("cordon", node.Name)
	r.tells("Node " + node.Name + " NodeNotSchedulable")
	r.kubectl("uncordon", node.Name)
	r.tells("Node " + node.Name + " NodeSchedulable")
	r.kubectl("patch", "node", node.Name, "--subresource=status", "-p", `{"status": {"nodeInfo": {"bootID": "that-of-before"}}}`)
	r.tells("Node " + node.Name + " Rebooted")
	if out := r.kubectl("describe", "node", node.Name); !strings.Contains(out, "kubelet  ") || !strings.Contains(out, "Starting kubelet.") {
		t.Errorf("describe: %s", out)
	}

	first := r.told()[pod+" Unhealthy"]
	r.Eventually("a repeated event is counted", func() error {
		if now := r.told()[pod+" Unhealthy"]; now.Name != first.Name || now.Count <= first.Count || now.Source.Host != node.Name || now.ReportingController != "kubelet" {
			return fmt.Errorf("event %+v", now)
		}
		return nil
	})
}

// told are the events at the API server, by what they are about.
func (r *rig) told() map[string]v1.Event {
	r.t.Helper()
	var list v1.EventList
	if err := json.Unmarshal([]byte(r.kubectl("get", "events", "-A", "-o", "json")), &list); err != nil {
		r.t.Fatal(err)
	}
	told := map[string]v1.Event{}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" {
			told[fmt.Sprintf("%s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason)] = e
		}
	}
	return told
}

// tells waits until the API server has these events: kind, name and reason of each.
func (r *rig) tells(want ...string) {
	r.t.Helper()
	r.Eventually("events", func() error {
		told := r.told()
		for _, w := range want {
			if _, ok := told[w]; !ok {
				return fmt.Errorf("no event %q in %v", w, told)
			}
		}
		return nil
	})
}
