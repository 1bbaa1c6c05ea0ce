package nodeapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// TestCheckpoint: the runtime is asked for an archive with the documented name, and who asks is told where it is, or why there is none.
func TestCheckpoint(t *testing.T) {
	n := newNode(t)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, v1.ContainerStatus{Name: "d"})
	conf := n.config()
	address, _ := serve(t, nodeapi.Routes(conf), open())
	for _, c := range []struct {
		method, path string
		cannot       error
		code         int
		text, asked  string
	}{
		{"POST", "web/c", nil, 200, "", `^container_id:"id1" location:"LOCATION"$`},
		{"POST", "web/c?timeout=300", nil, 200, "", `^container_id:"id1" location:"LOCATION" timeout:300$`},
		{"POST", "web/c?timeout=0", nil, 200, "", `^container_id:"id1" location:"LOCATION"$`},
		{"POST", "web/c", errors.New("criu isn't there"), 500, "checkpointing of default/web/c failed (criu isn't there)", "id1"},
		{"POST", "web/c?timeout=-1", nil, 400, "timeout", ""},
		{"POST", "web/c?timeout=soon", nil, 400, "timeout", ""},
		{"POST", "web/d", nil, 404, `container not found ("d")`, ""},
		{"POST", "web/none", nil, 404, `container "none" not found`, ""},
		{"POST", "none/c", nil, 404, `pod "none" not found`, ""},
		{"GET", "web/c", nil, 405, "", ""},
	} {
		n.asked, n.cannot = nil, c.cannot
		code, text := ask(t, c.method, "https://"+address+"/checkpoint/default/"+c.path, "")
		if code != c.code || !strings.Contains(text, c.text) || (c.asked == "") != (len(n.asked) == 0) {
			t.Errorf("%s %s: %d %q, asked %q; want %d %q", c.method, c.path, code, text, n.asked, c.code, c.text)
			continue
		}
		if c.code != 200 {
			continue
		}
		var answer struct{ Items []string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Items) != 1 {
			t.Fatalf("%q: %v", text, err)
		}
		if !regexp.MustCompile(`^/root-dir/checkpoints/checkpoint-web_default-c-\d{4}-\d\d-\d\dT[0-9:+Z-]+\.tar$`).MatchString(answer.Items[0]) {
			t.Errorf("%s: at %s", c.path, answer.Items[0])
		}
		if got := strings.ReplaceAll(strings.Replace(n.asked[0], answer.Items[0], "LOCATION", 1), "  ", " "); !regexp.MustCompile(c.asked).MatchString(got) {
			t.Errorf("%s: asked %s, want %s", c.path, got, c.asked)
		}
	}
	conf.Checkpoints = "" // the feature gate is off
	off, _ := serve(t, nodeapi.Routes(conf), open())
	if code, text := ask(t, "POST", fmt.Sprintf("https://%s/checkpoint/default/web/c", off), ""); code != 404 {
		t.Errorf("without the feature gate: %d %s", code, text)
	}
}
