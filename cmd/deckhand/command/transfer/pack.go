package transfer

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Pack writes a tree of files to an archive. name is the path of the tree below root, and as is its path in the
// archive. If as is ".", the archive has only the content of the directory. Pack follows no symlinks. It calls the
// function remark for files that it omits.
func Pack(archive io.Writer, root *os.Root, name, as string, remark func(string)) error {
	w := tar.NewWriter(archive)
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() { // OpenRoot would follow a symlink
		if err := pack(w, root, name, as, remark); err != nil {
			return err
		}
		return w.Close()
	}
	// If a directory is replaced meanwhile, paths still can't lead out of the tree.
	tree, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer tree.Close()
	if opened, err := tree.Stat("."); err != nil || !os.SameFile(info, opened) {
		return cmp.Or(err, replaced(root, name))
	}
	err = fs.WalkDir(tree.FS(), ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return pack(w, tree, at, path.Join(as, at), remark)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func pack(w *tar.Writer, root *os.Root, at, as string, remark func(string)) error {
	info, err := root.Lstat(at)
	if err != nil {
		return err
	}
	link := ""
	switch kind := info.Mode().Type(); kind {
	case fs.ModeDir:
		if as == "." {
			return nil
		}
		as += "/"
	case fs.ModeSymlink:
		if link, err = root.Readlink(at); err != nil {
			return err
		}
	case 0:
		return packFile(w, root, at, info, as)
	default:
		remark(fmt.Sprintf("%s is neither a file nor a directory: it is left out", shown(root, at)))
		return nil
	}
	return header(w, info, link, as)
}

func header(w *tar.Writer, info fs.FileInfo, link, as string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = as
	return w.WriteHeader(h)
}

func replaced(root *os.Root, at string) error {
	return fmt.Errorf("%s was replaced while it was copied", shown(root, at))
}

// shown returns the path for messages.
func shown(root *os.Root, at string) string { return path.Join(root.Name(), at) }

// packFile packs a file that was found before, with its current content.
func packFile(w *tar.Writer, root *os.Root, at string, found fs.FileInfo, as string) error {
	f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(found, info) {
		return replaced(root, at)
	}
	if err := header(w, info, "", as); err != nil {
		return err
	}
	if n, err := io.CopyN(w, f, info.Size()); err != nil {
		if n < info.Size() && err == io.EOF {
			err = errors.New("it has become shorter while it was copied")
		}
		return fmt.Errorf("read %s: %w", shown(root, at), err)
	}
	return nil
}
