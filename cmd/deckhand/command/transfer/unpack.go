// Package transfer copies files to and from containers as tar archives. Archives of containers aren't trusted:
// nothing is written outside of the destination, or through a symlink.
package transfer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOutside means that an archive has files that weren't requested.
var ErrOutside = errors.New("the container's archive has files outside of the requested path")

// Unpacking unpacks a tree of files from an archive.
type Unpacking struct {
	// Into is the destination directory, and To the path of the tree in it. From is the path of the tree in the
	// archive, which must not contain other files.
	Into     *os.Root
	To, From string
	// Remark is called with a message for each omitted file.
	Remark func(string)
	// found is set once From was found in the archive.
	found bool
	// made is the last directory that was created or checked.
	made string
}

// maxPath is the maximum length of a path in Linux.
const maxPath = 4096

// Read reads the archive to its end.
func (u *Unpacking) Read(archive io.Reader) error {
	entries := tar.NewReader(archive)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the container's archive: %w", err)
		}
		if err := u.entry(h, entries); err != nil {
			return err
		}
	}
	// The last block is padded.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return fmt.Errorf("read the container's archive: %w", err)
	}
	if !u.found {
		return fmt.Errorf("%s isn't in the container's archive", u.From)
	}
	return nil
}

// place returns the destination of an entry of the archive.
func (u *Unpacking) place(name string) (string, error) {
	// A program that packs "." may begin all names with "./".
	clean := path.Clean(name)
	rest, below := strings.CutPrefix(clean, u.From+"/")
	switch {
	case strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") || len(name) > maxPath:
	case clean == u.From:
		return u.To, nil
	case u.From == ".":
		return path.Join(u.To, clean), nil
	case below:
		return path.Join(u.To, rest), nil
	}
	return "", fmt.Errorf("%w: %q isn't %q, nor in it", ErrOutside, name, u.From)
}

func (u *Unpacking) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := u.place(h.Name)
	if err != nil {
		return err
	}
	if isSparse(h) {
		return fmt.Errorf("%s is sparse in the container's archive: it may be larger than anything that was sent",
			h.Name)
	}
	u.found = true
	// Drop setuid, setgid and sticky.
	mode := fs.FileMode(h.Mode) & 0o777
	if h.Typeflag == tar.TypeDir {
		return u.directory(name, mode|0o700)
	}
	if err := u.directory(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, mode, content)
	case tar.TypeSymlink:
		return u.link(name, h.Linkname)
	case tar.TypeLink:
		return u.sameFile(name, h.Linkname)
	}
	u.Remark(fmt.Sprintf("%s is neither a file nor a directory: it is left out", h.Name))
	return nil
}

// isSparse reports whether an entry expands to more bytes than the archive has of it.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// directory creates a directory with this mode, and its parents, if they don't exist. None of them may be a symlink.
func (u *Unpacking) directory(name string, mode fs.FileMode) error {
	if name == "." || name == u.made {
		return nil
	}
	if err := u.directory(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch info, err := u.Into.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		if err := u.Into.Mkdir(name, mode); err != nil {
			return err
		}
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link here: nothing is written through it", u.shown(name))
	case !info.IsDir():
		return fmt.Errorf("%s is a file here, and a directory in the container", u.shown(name))
	}
	u.made = name
	return nil
}

// clear makes room for an entry that isn't a directory. It removes an existing file, instead of overwriting it,
// because the file may have other hard links.
func (u *Unpacking) clear(name string) error {
	switch info, err := u.Into.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory here, and none in the container", u.shown(name))
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s is neither a file nor a directory here: nothing takes its place", u.shown(name))
	}
	return u.Into.Remove(name)
}

func (u *Unpacking) file(name string, mode fs.FileMode, content io.Reader) (err error) {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.Into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return fmt.Errorf("write %s: %w", u.shown(name), err)
	}
	return nil
}

// link creates a symlink if its target is in the tree. It omits other symlinks: their targets are in the container, and
// on this machine the same path would be another file.
func (u *Unpacking) link(name, to string) error {
	if !u.stays(name, to) {
		u.Remark(fmt.Sprintf("%s is a symbolic link to %s, outside of the copied tree: it is left out", u.shown(name),
			to))
		return nil
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.Into.Symlink(to, name)
}

// stays reports whether a symlink can only lead to files in the tree. Its ".." elements must come first, where all
// directories are real ones; after other elements, ".." could start from another symlink's target.
func (u *Unpacking) stays(name, to string) bool {
	rest := to
	for rest == ".." || strings.HasPrefix(rest, "../") {
		rest = strings.TrimPrefix(rest[2:], "/")
	}
	target := path.Join(path.Dir(name), to)
	within := u.To == "." || target == u.To || strings.HasPrefix(target, u.To+"/")
	return within && filepath.IsLocal(target) && !path.IsAbs(rest) && !slices.Contains(strings.Split(rest, "/"), "..")
}

// sameFile creates a hard link to a file of the archive.
func (u *Unpacking) sameFile(name, as string) error {
	as, err := u.place(as)
	if err != nil {
		return err
	}
	if as == name {
		return nil
	}
	switch info, err := u.Into.Lstat(as); {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s as another name of %s, which isn't a file", ErrOutside, u.shown(name), u.shown(as))
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.Into.Link(as, name)
}

// shown returns the path for messages.
func (u *Unpacking) shown(name string) string { return filepath.Join(u.Into.Name(), name) }
