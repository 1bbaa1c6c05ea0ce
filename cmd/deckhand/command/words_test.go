package command

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// TestWordsOfOtherTools: what users of kubectl, crictl and podman type works, or the answer names
// what does it here.
func TestWordsOfOtherTools(t *testing.T) {
	root := otherToolsRig(t)
	archive := filepath.Join(root, "web.tar")
	if err := os.WriteFile(archive, []byte("web:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line string
		code int
		want string // in what is printed
	}{
		{"get pods", 0, "job-n1   1/1     Running"},
		{"get pod", 0, "job-n1   1/1"},
		{"get po -A", 0, "job-n1   1/1"},
		{"get all", 0, "job-n1   1/1"},
		{"get -A pods", 0, "job-n1   1/1"},
		{"get -o wide pods", 0, "ORIGIN"},
		{"get pods job-n1 -n default", 0, "job-n1   1/1"},
		{"get pods -n default -A", 0, "NAMESPACE"},
		{"get pod/job-n1 -o yaml", 0, "kind: Pod"},
		{"get pods --no-headers -o wide", 0, "job-n1   1/1"},
		{"get pods -l app=job --sort-by=.metadata.name", 0, "job-n1   1/1"},
		{"get pods --selector app!=job", 0, ""},
		{"get po -o name", 0, "pod/job-n1"},
		{"get pods -o jsonpath={.items[*].metadata.name}", 0, "job-n1"},
		{"get pod job -o jsonpath={.status.phase}", 0, "Running"},
		{"get pods -o custom-columns=N:.metadata.name,P:.status.phase", 0, "job-n1   Running"},
		{"get pods -o json", 0, `"kind": "List"`},
		{"get events -o json", 0, `"kind": "List"`},
		{"get events -o jsonpath={.items[0].reason}", 0, "Started"},
		{"images -o jsonpath={.items[0].refs[0]}", 0, "job:1"},
		{"ps -a", 0, "job-n1   1/1"},
		{"get events", 0, "Started"},
		{"get ev -n default", 0, "Started"},
		{"get images", 0, "job:1"},
		{"pod ps", 0, "job-n1   1/1"},
		{"pod ls job", 0, "job-n1   1/1"},
		{"get svc", 2, "`deckhand pods`"},
		{"get pods --show-labels", 0, "app=job"},
		{"get pods --field-selector status.phase=Running", 0, "job-n1"},
		{"get pods -L app", 0, "APP"},
		{"get pods,events", 0, "Started"},
		{"get pods,events -L app,none", 0, "APP   NONE"},
		{"get pods,events -w", 2, "--watch is for one kind at a time"},
		{"get po,no", 0, "VERSION"},
		{"get nodes", 0, "n1"},
		{"get node/n1 -o name", 0, "node/n1"},
		{"get node n2", 1, "this node is called n1, not n2"},
		{"get pods,deploy", 2, "`deckhand pods`"},
		{"get pods,events -o json", 2, "one kind at a time"},
		{"get pods,events job", 2, "pod/job"},
		{"logs deploy/job", 2, "`deckhand pods`"},
		{"exec sts/job -- ls", 2, "`deckhand pods`"},
		{"events --sort-by=.lastTimestamp --field-selector type=Normal,reason!=Killing", 0, "Started"},
		{"events --field-selector kind=Pod", 2, "involvedObject.kind"},
		{"images ls -q", 2, "jsonpath={.items[*].id}"},
		{"images -o jsonpath={.items[*].id}", 0, "sha256:1"},
		{"run -d web", 2, "`deckhand run FILE`"},
		{"run web --image=web:1", 2, "`deckhand run FILE`"},
		{"load -i web.tar", 2, "`deckhand load FILE`"},
		{"import web.tar", 2, "`deckhand images import FILE`"},
		{"system prune", 2, "`deckhand images prune`"},
		{"secret ls", 2, "`deckhand pods -o wide`"},
		{"generate kube job", 2, "`deckhand pods -o yaml POD`"},
		{"pause job", 2, "`deckhand stop POD`"},
		{"get ns", 2, "`deckhand pods -A`"},
		{"get configmaps web", 2, "`deckhand pods -o wide`"},
		{"get deploy", 2, "`deckhand pods`"},
		{"get pvc/data", 2, "`deckhand why`"},
		{"get nonsense", 2, "pods, events, images and nodes"},
		{"get", 2, "pods, events, images or nodes"},
		{"describe pod job", 0, "job-n1"},
		{"describe pod/job", 0, "job-n1"},
		{"describe po job", 0, "job-n1"},
		{"describe pods", 0, "job-n1"},
		{"describe job", 0, "job-n1"},
		{"describe node n1", 0, "n1"},
		{"status", 0, "The only pod is fine."},
		{"status job", 0, "job-n1: ready"},
		{"logs pod/job", 0, "hello"},
		{"logs job -c job --tail=1", 0, "hello"},
		{"ps", 0, "job-n1   1/1"},
		{"version --client", 0, "Client:"},
		{"images ls", 0, "job:1"},
		{"images list", 0, "job:1"},
		{"image ls -o json", 0, `"job:1"`},
		{"images load " + archive, 0, "web:1"},
		{"load " + archive, 0, "web:1"},
		{"pull new:1", 0, "pulled new:1"},
		{"rmi new:1", 0, "removed new:1"},
		{"apply -f web.yaml", 2, "`deckhand run FILE`"},
		{"create -f -", 2, "`deckhand run FILE`"},
		{"kube play web.yaml", 2, "`deckhand run FILE`"},
		{"delete pod web --grace-period=0", 2, "`deckhand stop POD`"},
		{"restart", 2, "restart"},
		{"edit pod web", 2, "ORIGIN"},
		{"scale --replicas=0 deployment/web", 2, "ORIGIN"},
		{"exec -it job -- sh", 0, "[\"sh\"]"},
		{"attach -it pod/job", 0, "attached to default/job-n1/job"},
		{"cp --help", 0, "POD:PATH"},
		{"debug job --help", 0, "ephemeral"},
		{"port web", 2, "`deckhand port-forward POD PORT`"},
		{"stats", 2, "`deckhand top pods`"},
		{"top", 2, "deckhand top pods, or deckhand top node"},
		{"explain pod.spec", 2, "`deckhand config docs FIELD`"},
		{"validate web.yaml", 2, "`deckhand config check FILE`"},
		{"wait --for=condition=Ready pod/job", 0, "pod/job-n1 condition met"},
		{"inspect web", 2, "`deckhand pods -o yaml POD`"},
		{"cluster-info", 2, "`deckhand version`"},
		{"drain n1 --force", 2, "`deckhand down`"},
		{"build .", 2, "`deckhand images pull NAME`"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			var out, errs bytes.Buffer
			deps := Deps{RootDir: root, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
			code := Main(t.Context(), strings.Fields(tc.line), "deckhand", nil, &out, &errs, deps)
			told, other := &out, &errs
			if tc.code != 0 {
				told, other = &errs, &out
			}
			if code != tc.code || !strings.Contains(told.String(), tc.want) {
				t.Errorf("exit code %d, want %d and %q in:\n%s%s", code, tc.code, tc.want, &out, &errs)
			}
			if tc.code != 0 && other.Len() > 0 {
				t.Errorf("an error has output: %s", other)
			}
		})
	}
}

// The whole manifest as kubectl has applied it is no news in a description.
func TestDescriptionWithoutTheAppliedManifest(t *testing.T) {
	view := jobView(v1.PodRunning, running)
	view.Pod.Annotations = map[string]string{v1.LastAppliedConfigAnnotation: "{}", "team": "blue"}
	var out bytes.Buffer
	if err := show.DescribePod(&out, &local.Explanation{Pod: view.Pod}, now); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "team: blue") || strings.Contains(text, v1.LastAppliedConfigAnnotation) || len(view.Pod.Annotations) != 2 {
		t.Errorf("%s", text)
	}
}

// otherToolsRig is an agent's root directory: there are a pod, its log, an image and an event.
func otherToolsRig(t *testing.T) (root string) {
	t.Helper()
	agent := localtest.New()
	view := jobView(v1.PodRunning, running)
	view.Pod.Labels = map[string]string{"app": "job"}
	agent.Update(pods(view))
	agent.SetNode(local.Node{Name: "n1"})
	agent.Update(func(s *local.Snapshot) { s.Node, s.Agent.RuntimeReady = "n1", true })
	agent.SetImages([]image.Image{{ID: "sha256:1", Refs: []string{"job:1"}, Size: 1}})
	agent.SetEvents([]local.Event{{Seq: 1, Time: now, First: now, Type: "Normal", Reason: "Started", Namespace: "default", Object: "pod/job-n1", Message: "started", Count: 1}})
	agent.Pages = map[string]http.Handler{"/stats/summary": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"pods": [{"podRef": {"name": "job-n1", "namespace": "default"}}]}`)
	})}
	agent.OnSession = localtest.Sessions(inContainer)
	root = localtest.Serve(t, agent)
	writeLog(t, root, "job", "hello")
	return root
}

// TestOtherToolsPage types what docs/reference/other-tools.md names: it works, or the answer names what the page says.
func TestOtherToolsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/other-tools.md")
	if err != nil {
		t.Fatal(err)
	}
	alone, cluster := otherToolsRig(t), otherToolsRig(t)
	if err := os.WriteFile(filepath.Join(cluster, rootdir.Record), []byte(`{"version": 1, "cluster": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	root, rows := alone, map[string]int{}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "## ") {
			root = cluster
		}
		cells := strings.SplitN(strings.TrimSpace(line), " | ", 2)
		typed, ok := strings.CutPrefix(cells[0], "| `")
		if !ok || len(cells) != 2 {
			continue
		}
		rows[root]++
		args := strings.Fields(strings.TrimSuffix(typed, "`"))[1:]
		var out, errs bytes.Buffer
		deps := Deps{RootDir: root, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
		code := Main(t.Context(), args, "deckhand", nil, &out, &errs, deps)
		if strings.HasPrefix(cells[1], "works") {
			if code != 0 {
				t.Errorf("%s: exit code %d: %s", typed, code, &errs)
			}
			continue
		}
		_, named, _ := strings.Cut(cells[1], "`")
		named, _, _ = strings.Cut(named, "`")
		if code != 2 || !strings.Contains(errs.String(), named) {
			t.Errorf("%s: exit code %d, want 2 and %q in: %s", typed, code, named, &errs)
		}
	}
	if rows[alone] < 40 || rows[cluster] < 10 {
		t.Errorf("the page has %d commands, and %d for clusters", rows[alone], rows[cluster])
	}
}

// TestHintsFitTheirWorld: a machine alone has no kubectl, and in a cluster only static pods have manifests. What is advised exists.
func TestHintsFitTheirWorld(t *testing.T) {
	root := New(Deps{})
	foreign := regexp.MustCompile("kubectl|(?:the|an) API server|the cluster")
	ours := regexp.MustCompile("`deckhand ([^`]+)`")
	for _, h := range slices.Concat(elsewhere, flagsElsewhere, show.OtherKinds) {
		if said := foreign.FindString(h.Text(false)); said != "" {
			t.Errorf("%s: on a machine alone there is no %s: %s", h.Words, said, h.Text(false))
		}
		manifests := strings.Contains(h.Text(true), "manifest") && !strings.Contains(h.Text(true), "prints a pod as a manifest")
		if manifests && !strings.Contains(h.Text(true), "static pod") && !strings.Contains(h.Text(true), "`kubectl ") {
			t.Errorf("%s: pods of a cluster have no manifests here: %s", h.Words, h.Text(true))
		}
		if h.Cluster == h.Alone {
			t.Errorf("%s: both texts are the same: leave Cluster empty", h.Words)
		}
		for _, text := range []string{h.Text(false), h.Text(true)} {
			for _, m := range ours.FindAllStringSubmatch(text, -1) {
				if c, _, err := root.Find(strings.Fields(m[1])); err != nil || c == root || c.Hidden && c.Name() != "load" {
					t.Errorf("%s: there is no command %q", h.Words, m[0])
				}
			}
		}
	}
}

// TestSignpostsHideNoCommand: a word that points the way is no command's, and isn't there twice.
func TestSignpostsHideNoCommand(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range New(Deps{}).Commands() {
		for _, word := range slices.Concat([]string{c.Name()}, c.Aliases) {
			if seen[word] {
				t.Errorf("there are two commands %q", word)
			}
			seen[word] = true
		}
	}
}

// TestSuggestions: what is suggested is a slip of the hand away, not any short word.
func TestSuggestions(t *testing.T) {
	for typed, want := range map[string]string{
		"pdos": "pods", "imagse": "images", "evnts": "events", "jornal": "journal", "abc": "", "xyzzy": "", "lgs": "logs",
	} {
		var errs bytes.Buffer
		Main(t.Context(), []string{typed, "--help=false"}, "deckhand", nil, &bytes.Buffer{}, &errs, Deps{RootDir: t.TempDir()})
		if got := strings.Contains(errs.String(), "did you mean"); got != (want != "") || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: want %q of: %s", typed, want, &errs)
		}
	}
}
