package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// BinaryVariable names the environment variable with a deckhand to test instead
// of one built from the sources, such as a release's.
const BinaryVariable = "DECKHAND_BINARY"

// Build builds deckhand into dir with the race detector and returns its path.
// The tests read the detector's findings from the agent's log.
func Build(dir string) (string, error) { return build(dir, "CGO_ENABLED=1", "-race") }

// BuildFast is Build without the race detector, for tests that measure times.
func BuildFast(dir string) (string, error) { return build(dir, "CGO_ENABLED=0") }

func build(dir, env string, flags ...string) (string, error) {
	if given := os.Getenv(BinaryVariable); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "deckhand")
	cmd := exec.Command("go", slices.Concat([]string{"build"}, flags,
		[]string{"-o", path, "github.com/deckhand-node/deckhand/cmd/deckhand"})...)
	cmd.Env = append(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build deckhand: %w\n%s", err, out)
	}
	return path, nil
}

// ToolsArchive builds the archive of the images tools:1 and tools:2 into dir and
// returns its path: see images/tools/main.go for what they can do.
func ToolsArchive(dir string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	root := strings.TrimSpace(string(out))
	cmd := exec.Command("go", "run", "./images/build", "-o", dir, "tools")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the test images: %w\n%s", err, out)
	}
	return filepath.Join(dir, "tools.tar"), nil
}
