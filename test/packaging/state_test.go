package packaging

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// row is a line of UPGRADING.md's table of state files.
type row struct {
	text     string
	patterns []*regexp.Regexp
	// format is the version that the files name; 0 if they name none.
	format int
	seen   bool
}

var quoted = regexp.MustCompile("`([^`]+)`")

// stateFiles reads the tables of a document whose first column names files.
func stateFiles(t *testing.T, document string) []*row {
	t.Helper()
	var rows []*row
	for line := range strings.Lines(read(t, checkout(document))) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		r := &row{text: strings.TrimSpace(line)}
		names, _, _ := strings.Cut(cells[1], ":")
		for _, name := range quoted.FindAllStringSubmatch(names, -1) {
			expr := strings.NewReplacer(`\*\*`, `.*`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(name[1]))
			r.patterns = append(r.patterns, regexp.MustCompile("^"+expr+"$"))
		}
		r.format, _ = strconv.Atoi(strings.TrimSpace(cells[2])) // most have no number
		rows = append(rows, r)
	}
	return rows
}

// TestStateFilesAreDocumented runs the installed program for real, and looks what it leaves:
// every file has its line, with the format that is written.
func TestStateFilesAreDocumented(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	// Its programs and its pause image are those of the package.
	// The node is short of memory, which is written down, and evicts nothing for an hour.
	n := node.New(t, filepath.Join(root, "usr/bin/deckhand"), node.Options{Flags: []string{"--embedded-bin-dir="},
		Config: "evictionSoft: {memory.available: 99%}\nevictionSoftGracePeriod: {memory.available: 1h}"})
	if err := os.Remove(filepath.Join(n.RootDir, "images/pause.tar")); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Write("web.yaml", `
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOncePod]
  hostPath: {path: `+t.TempDir()+`}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOncePod]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: `+node.Image+`
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: scratch, mountPath: /scratch}, {name: data, mountPath: /data}]
  volumes: [{name: scratch, emptyDir: {}}, {name: data, persistentVolumeClaim: {claimName: data}}]
`)
	n.Await("the pod runs", node.Ready("web"))
	if said, code := n.Deckhand("images"); code != 0 { // which looks when they were used, and keeps it
		t.Error(said)
	}
	if said, code := n.Deckhand("restart", "web"); code != 0 { // what is stopped is written down
		t.Error(said)
	}
	n.Await("the pod runs again", node.Ready("web"))
	if said, code := n.Deckhand("debug", "web", "--image", node.Image); code != 0 { // so is what is added
		t.Error(said)
	}
	n.Stop()

	rows, reference := stateFiles(t, "UPGRADING.md"), stateFiles(t, "docs/reference/files.md")
	err := filepath.WalkDir(n.RootDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(n.RootDir, path)
		if err != nil {
			return err
		}
		r := lookUp(rows, name)
		if r == nil {
			t.Errorf("UPGRADING.md has no line for %s", name)
			return nil
		}
		if lookUp(reference, name) == nil {
			t.Errorf("docs/reference/files.md has no line for %s", name)
		}
		r.seen = true
		if r.format == 0 {
			return nil
		}
		var content struct{ Version int }
		// Events may follow on further lines.
		if err := json.NewDecoder(strings.NewReader(read(t, path))).Decode(&content); err != nil || content.Version != r.format {
			t.Errorf("%s has format %d (%v), while UPGRADING.md says %q", name, content.Version, err, r.text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		// What is kept of an API server is written on a node of a cluster only: TestWithoutAPIServer of test/cluster looks at its format. Devices
		// are brought by drivers only.
		if r.format > 0 && !r.seen && lookUp([]*row{r}, "checkpoints/apiserver.jsonl") == nil && lookUp([]*row{r}, "staged/x/device") == nil {
			t.Errorf("there was no file of %q", r.text)
		}
	}
}

// lookUp returns the first row that has the file: the table goes from the special to the general.
func lookUp(rows []*row, name string) *row {
	for _, r := range rows {
		for _, p := range r.patterns {
			if p.MatchString(name) {
				return r
			}
		}
	}
	return nil
}
