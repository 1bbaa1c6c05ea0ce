package volumestate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Names of directories below a pod's directory.
const (
	Volumes  = "volumes"
	Plugins  = "plugins"
	SubPaths = "volume-subpaths"
)

// Place identifies a volume on disk.
type Place struct {
	UID types.UID
	// Plugin and Name are the names of the plugin's directory and of the volume's directory in it.
	Plugin, Name string
}

// PlaceOf returns the place of a volume. It fails for names that can't be directories.
func PlaceOf(uid types.UID, plugin volume.Plugin, spec volume.Spec) (Place, error) {
	p := Place{UID: uid, Plugin: PluginDir(plugin.Name()), Name: spec.Name()}
	if err := safeopen.Check("volume name", p.Name); err != nil {
		return Place{}, err
	}
	return p, nil
}

// PluginDir returns the name of a plugin's directories.
func PluginDir(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// Layout maps pods and places of volumes to paths below the directory of all pods.
type Layout struct{ podsDir string }

// NewLayout returns the layout below podsDir.
func NewLayout(podsDir string) Layout { return Layout{podsDir} }

// Pods returns the directory of all pods.
func (l Layout) Pods() string { return l.podsDir }

// Pod returns the pod's directory.
func (l Layout) Pod(uid types.UID) string { return filepath.Join(l.podsDir, string(uid)) }

// Place returns the volume's paths.
func (l Layout) Place(p Place) volume.Place {
	return volume.Place{UID: p.UID, Dir: filepath.Join(l.Pod(p.UID), Volumes, p.Plugin, p.Name),
		Meta: filepath.Join(l.Pod(p.UID), Plugins, p.Plugin, p.Name)}
}

// UIDs lists the pods that have a directory, sorted.
func (l Layout) UIDs() ([]types.UID, error) {
	names, err := dirs(l.podsDir)
	if err != nil {
		return nil, fmt.Errorf("list pods' directories: %w", err)
	}
	uids := make([]types.UID, len(names))
	for i, n := range names {
		uids[i] = types.UID(n)
	}
	return uids, nil
}

// List returns the places of the pod's volumes that have directories, sorted by plugin and name.
func (l Layout) List(uid types.UID) ([]Place, error) {
	var all []Place
	for _, kind := range []string{Volumes, Plugins} {
		dir := filepath.Join(l.Pod(uid), kind)
		plugins, err := dirs(dir)
		if err != nil {
			return nil, fmt.Errorf("list the pod's volumes: %w", err)
		}
		for _, plugin := range plugins {
			names, err := dirs(filepath.Join(dir, plugin))
			if err != nil {
				return nil, fmt.Errorf("list the pod's volumes: %w", err)
			}
			for _, n := range names {
				all = append(all, Place{uid, plugin, n})
			}
		}
	}
	slices.SortFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all), nil
}

// dirs lists the directories in dir. It doesn't stat them, because file systems that are mounted on them may hang.
func dirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && safeopen.Check("name", e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
