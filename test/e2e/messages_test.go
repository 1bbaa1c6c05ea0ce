package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What a container leaves behind when it ends is reported with its end, by this agent and by the next.
func TestTerminationMessages(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	const fallback = "terminationMessagePolicy: FallbackToLogsOnError"
	n.Write("words.yaml", toolPod(n, "words", "restartPolicy: Never", containers(
		tool("file", "append /dev/termination-log done"),
		tool("elsewhere", "append /last/words done", "terminationMessagePath: /last/words", fallback),
		tool("logs", "nonsense", fallback),
		tool("silent", "nonsense"),
		tool("success", "cat /dev/null", fallback))))

	said := []node.Condition{
		ends("words", "file", 0, " done\n"), ends("words", "elsewhere", 0, " done\n"), ends("words", "logs", 2, `tools: no command "nonsense"`),
		ends("words", "silent", 2, ""), ends("words", "success", 0, ""),
	}
	n.Await("the containers' last words", said...)
	n.Kill()
	n.Start()
	n.Await("a new agent reads them again", append(said, agentIs(n))...)
}

// ends is the condition that a container has ended, and left a message with these words; none if empty.
func ends(pod, name string, code int32, words string) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		e := c.State.Terminated
		if e == nil || e.ExitCode != code || !strings.Contains(e.Message, words) || words == "" && e.Message != "" {
			return fmt.Errorf("is %+v, want it ended with %d and the words %q", c.State, code, words)
		}
		return nil
	})
}
