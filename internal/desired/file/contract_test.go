package file_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestContract(t *testing.T) {
	for name, make := range fixtures() {
		t.Run(name, func(t *testing.T) { sourcetest.RunLasting(t, make) })
	}
}

// TestContractUnwatched: the contract holds where nothing can be watched.
func TestContractUnwatched(t *testing.T) {
	for name, make := range fixtures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each in a process of its own, which mostly waits
			filewatchtest.Run(t, filewatchtest.Limits{}, func(t *testing.T) { sourcetest.RunLasting(t, make) })
		})
	}
}

func fixtures() map[string]func(t *testing.T) sourcetest.Fixture {
	return map[string]func(t *testing.T) sourcetest.Fixture{
		"directory": func(t *testing.T) sourcetest.Fixture {
			dir := t.TempDir()
			return fixture(t, dir, filepath.Join(dir, "pods.yaml"))
		},
		"file": func(t *testing.T) sourcetest.Fixture {
			path := filepath.Join(t.TempDir(), "pods.yaml")
			return fixture(t, path, path)
		},
	}
}

// fixture reads from path, where manifest is or will be.
func fixture(t *testing.T, path, manifest string) sourcetest.Fixture {
	checkpoints := t.TempDir()
	return sourcetest.Fixture{
		Kind: pod.SourceFile,
		New: func(sink desired.Sink) sourcetest.Source {
			return newSource(t, path, checkpoints, sink)
		},
		Put: func(text string) {
			if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Remove: func() {
			if err := os.Remove(manifest); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		},
		Lasting: true,
	}
}

// newSource returns a source that rescans so rarely that only events can help.
func newSource(t testing.TB, path, checkpoints string, sink desired.Sink) *file.Source {
	return file.New(file.Config{Path: path, Every: time.Hour, Files: filewatch.New(20*time.Millisecond, logr.Discard())}, sourcetest.NewReader(pod.SourceFile),
		manifeststore.NewStore(checkpoints, "", pod.SourceFile), sink, logFor(t))
}

func logFor(t testing.TB) logr.Logger { return testr.NewWithInterface(t, testr.Options{}) }
