package rig

import (
	"fmt"
	"os"
	"path/filepath"
)

// Manifest is the manifest of one pod of a measurement.
func Manifest(name, image string, args []string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: main
    image: %s
    args: %s
`, name, image, quoted(args))
}

// quoted writes a list the way YAML and JSON both read it.
func quoted(args []string) string {
	text := "["
	for i, arg := range args {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q", arg)
	}
	return text + "]"
}

// Stage writes n manifests beside the agent's directory, for Drop.
func (a *Agent) Stage(n int, image string, args []string) error {
	for i := range n {
		name := fmt.Sprintf("bench-%04d", i)
		if err := os.WriteFile(filepath.Join(a.path("staged"), name+".yaml"), Manifest(name, image, args), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Drop moves the staged manifests into the agent's directory, each by a rename.
func (a *Agent) Drop() error {
	files, err := os.ReadDir(a.path("staged"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Rename(filepath.Join(a.path("staged"), file.Name()), filepath.Join(a.manifests(), file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Clear removes all manifests.
func (a *Agent) Clear() error {
	files, err := os.ReadDir(a.manifests())
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Remove(filepath.Join(a.manifests(), file.Name())); err != nil {
			return err
		}
	}
	return nil
}
