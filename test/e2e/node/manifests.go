package node

import (
	"os"
	"path/filepath"
)

// Path is a file's place in the manifest directory.
func (n *Node) Path(file string) string { return filepath.Join(n.Manifests, file) }

// Write puts a manifest into the directory at one stroke, as careful writers do.
func (n *Node) Write(file, text string) {
	n.t.Helper()
	part := filepath.Join(n.Base, "part-of-"+file) // subtests write at the same time
	n.write(part, text)
	if err := os.Rename(part, n.Path(file)); err != nil {
		n.t.Fatal(err)
	}
}

// WriteInPlace overwrites a manifest where it is, as `cp` and most editors do.
func (n *Node) WriteInPlace(file, text string) {
	n.t.Helper()
	n.write(n.Path(file), text)
}

// Remove removes a manifest.
func (n *Node) Remove(file string) {
	n.t.Helper()
	if err := os.Remove(n.Path(file)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *Node) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}
