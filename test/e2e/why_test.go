package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// replays fails the test unless what the running agent (or with --previous the one
// before) decided about a pod is decided again when its journal is replayed, and
// returns the journal.
func replays(t *testing.T, n *node.Node, pod string, flags ...string) string {
	t.Helper()
	text, code := n.Deckhand(append([]string{"journal", pod}, flags...)...)
	if code != 0 || !strings.Contains(text, "\n> ") {
		t.Fatalf("deckhand journal %s ended with %d and said %q", pod, code, text)
	}
	file := filepath.Join(t.TempDir(), pod+".txtar")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := n.Deckhand("replay", file); code != 0 {
		t.Errorf("replayed, the journal of %s ends with %d:\n%s\nthe journal:\n%s", pod, code, out, text)
	}
	return text
}

// What a person asks about a pod that isn't well, and what they hand in about it.
func TestWhy(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("well.yaml", toolPod(n, "well", containers(tool("main", "act"))))
	n.Write("crashes.yaml", toolPod(n, "crashes", containers(tool("main", "act -exit 3 -after 1ms"))))
	n.Write("nowhere.yaml", strings.Replace(pod("nowhere"), node.Image, "127.0.0.1:1/nothing:1", 1))
	n.Write("unready.yaml", toolPod(n, "unready", containers(
		tool("main", "act", "readinessProbe: {exec: {command: [tools, check, /diary/well]}, periodSeconds: 1, failureThreshold: 1}"))))
	n.Write("hook.yaml", toolPod(n, "hook", "terminationGracePeriodSeconds: 1", containers(tool("main", "act", "lifecycle: {postStart: {exec: {command: [tools, check, /diary/well]}}}"))))
	n.Await("each is as it should be", node.Ready("well"), waiting("crashes", "CrashLoopBackOff", ""), waiting("hook", "CrashLoopBackOff", ""), waiting("nowhere", "ImagePullBackOff", ""))
	n.AwaitEvent("unready", "Unhealthy", "Readiness")
	for name, c := range map[string]struct {
		code int
		want []string
	}{
		"well":    {0, nil},
		"crashes": {1, []string{`main`, `ended with exit code 3`, `logs --previous`}},
		"nowhere": {1, []string{`web`, `127\.0\.0\.1:1/nothing:1`, `connection refused`}},
		"hook":    {1, []string{`main`, `failed its postStart hook: .*exited with`}},
		"unready": {1, []string{`main`, `readiness probe fails`, `exited with`}},
	} {
		out, code := n.Deckhand("why", name)
		if code != c.code {
			t.Errorf("deckhand why %s ended with %d, want %d: %s", name, code, c.code, out)
		}
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("deckhand why %s doesn't tell %s:\n%s", name, want, out)
			}
		}
		replays(t, n, name)
	}
	if out, code := n.Deckhand("why"); code != 1 || strings.Contains(out, "well-"+node.Name) || !strings.Contains(out, "crashes-"+node.Name) {
		t.Errorf("deckhand why ended with %d and said %s", code, out)
	}
	n.Stop()
	n.Start()
	n.Await("it is adopted", agentIs(n), node.Ready("well"))
	n.Eventually("the cause is still known", func() error {
		out, _ := n.Deckhand("why", "hook")
		if strings.Contains(out, "ended with exit code") {
			t.Errorf("the cause is lost:\n%s", out)
		}
		if !strings.Contains(out, "failed its postStart hook") {
			return errors.New(out)
		}
		return nil
	})
	for _, name := range []string{"well", "crashes", "unready"} {
		replays(t, n, name, "--previous")
	}
	replays(t, n, "well")
	// After an end without warning the journal is kept on disk all the time.
	n.Kill()
	n.Start()
	n.Await("it is adopted again", agentIs(n), node.Ready("well"))
	n.Eventually("the journal is on disk", func() error {
		list, err := filepath.Glob(filepath.Join(n.RootDir, "journal", "*.txtar"))
		if err == nil && len(list) < 4 {
			err = fmt.Errorf("there are only %q", list)
		}
		return err
	})
	n.Kill()
	n.Start()
	n.Await("it is adopted once more", agentIs(n), node.Ready("well"))
	replays(t, n, "well", "--previous")
}
