package atomicwriter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of paths: the kernel's limits in bytes of a path and of a name in it (path_resolution(7)), and the number
// of names in a path.
const (
	maxPath    = 4096
	maxElement = 255
	maxDepth   = 100
)

// Check validates the path of a file in a volume. Paths are relative and clean, and don't begin with "..", which
// the layout uses (API: KeyToPath.path).
func Check(path string) error {
	if reason := wrong(path); reason != "" {
		return fmt.Errorf("path %s %s: use a relative one such as \"directory/file\"", quoted(path), reason)
	}
	return nil
}

// CheckAll validates the paths of all files of a volume: no file may be a parent directory of another.
func CheckAll(files map[string]File) error {
	_, err := treeOf(files)
	return err
}

func wrong(path string) string {
	switch {
	case path == "":
		return "is empty"
	case len(path) > maxPath:
		return fmt.Sprintf("is longer than %d bytes", maxPath)
	case strings.HasPrefix(path, "/"):
		return "is absolute"
	case strings.HasPrefix(path, ".."):
		return `begins with ".."`
	case strings.Contains(path, `\`):
		return "has a backslash in it"
	case strings.ContainsRune(path, 0):
		return "has a NUL byte in it"
	case !utf8.ValidString(path):
		return "isn't UTF-8"
	}
	elements := strings.Split(path, "/")
	if len(elements) > maxDepth {
		return fmt.Sprintf("goes through more than %d directories", maxDepth)
	}
	for _, element := range elements {
		switch {
		case element == "..":
			return `has ".." in it`
		case element == "." || element == "":
			return `has a needless "." or "/" in it`
		case len(element) > maxElement:
			return fmt.Sprintf("has a name of more than %d bytes in it", maxElement)
		}
	}
	return ""
}

// quoted returns a path for a message, truncated if it is very long.
func quoted(path string) string {
	const enough = 100
	if len(path) > enough {
		return fmt.Sprintf("%q...", path[:enough])
	}
	return fmt.Sprintf("%q", path)
}

// node is a file, or a directory that maps names to nodes.
type node struct {
	file *File
	sub  map[string]*node
}

func newDir() *node { return &node{sub: map[string]*node{}} }

func (n *node) names() []string { return slices.Sorted(maps.Keys(n.sub)) }

// treeOf makes a tree of files by path.
func treeOf(files map[string]File) (*node, error) {
	root := newDir()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := Check(path); err != nil {
			return nil, err
		}
		file := files[path]
		if err := root.add(strings.Split(path, "/"), &file); err != nil {
			return nil, fmt.Errorf("path %s can't be both a file and a directory: %w", quoted(path), err)
		}
	}
	return root, nil
}

var errConflict = errors.New("another path of the volume begins or ends there")

func (n *node) add(elements []string, file *File) error {
	for _, name := range elements[:len(elements)-1] {
		next := n.sub[name]
		if next == nil {
			next = newDir()
			n.sub[name] = next
		}
		if next.file != nil {
			return errConflict
		}
		n = next
	}
	name := elements[len(elements)-1]
	if n.sub[name] != nil {
		return errConflict
	}
	n.sub[name] = &node{file: file}
	return nil
}
