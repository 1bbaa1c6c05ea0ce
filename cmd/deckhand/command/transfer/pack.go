package transfer

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Pack writes a tree of files, which is at name below root, as an archive, in which it is called as; "." is what is in it alone. It
// follows no link, and tells remark of what it leaves out.
func Pack(archive io.Writer, root *os.Root, name, as string, remark func(string)) error {
	w := tar.NewWriter(archive)
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() { // a link would be walked through
		if err := pack(w, root, name, as, remark); err != nil {
			return err
		}
		return w.Close()
	}
	err = fs.WalkDir(root.FS(), name, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest := at
		if at == name {
			rest = "."
		} else if name != "." {
			rest = at[len(name)+1:]
		}
		return pack(w, root, at, path.Join(as, rest), remark)
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
		return packFile(w, root, at, as)
	default:
		remark(fmt.Sprintf("%s is neither a file nor a directory: it is left out", at))
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

// packFile packs a file as it is when it is opened.
func packFile(w *tar.Writer, root *os.Root, at, as string) error {
	f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s was replaced while it was copied", at)
	}
	if err := header(w, info, "", as); err != nil {
		return err
	}
	if n, err := io.CopyN(w, f, info.Size()); err != nil {
		if n < info.Size() && err == io.EOF {
			err = fmt.Errorf("it has become shorter while it was copied")
		}
		return fmt.Errorf("read %s: %w", at, err)
	}
	return nil
}
