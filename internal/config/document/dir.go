package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// extension is the file name extension of drop-ins.
const extension = ".conf"

// Limits of the drop-ins: their number and their total size in bytes.
const (
	maxFiles = 1000
	maxTotal = MaxSize
)

// DropInFile is a file of the directory of drop-ins.
type DropInFile struct {
	Path string
	Data []byte
}

// ReadDir reads the files of --config-dir and its subdirectories whose names end in .conf, in lexical order,
// directory by directory (the kubelet's --help; see also KEP-3983). It ignores other files, and directories behind
// symlinks. The error names every file that can't be read; then no file is returned.
func ReadDir(dir string) ([]DropInFile, error) {
	r := dirReader{dir: dir}
	r.fail(fs.WalkDir(os.DirFS(dir), ".", r.visit))
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return r.files, nil
}

// IsDropIn reports whether ReadDir reads a file with this name.
func IsDropIn(name string) bool { return filepath.Ext(name) == extension }

type dirReader struct {
	dir      string
	files    []DropInFile
	total    int
	problems []error
}

func (r *dirReader) fail(err error) {
	if err != nil {
		r.problems = append(r.problems, err)
	}
}

// visit reads one file. It collects errors and continues.
func (r *dirReader) visit(name string, e fs.DirEntry, err error) error {
	path := filepath.Join(r.dir, name)
	if err != nil {
		r.fail(fmt.Errorf("the directory of drop-ins %s can't be read: %w", path, reason(err)))
		return nil
	}
	if e.IsDir() || !IsDropIn(name) {
		return nil
	}
	data, err := ReadFile(path)
	r.fail(err)
	r.files = append(r.files, DropInFile{Path: path, Data: data})
	if r.total += len(data); len(r.files) > maxFiles || r.total > maxTotal {
		return fmt.Errorf("the directory of drop-ins %s holds too much: at most %d files that end in %s, with %d "+
			"bytes together, are read", r.dir, maxFiles, extension, maxTotal)
	}
	return nil
}

// ReadFile reads a configuration file: a regular file or a symlink to one, of at most MaxSize bytes. It doesn't block
// on a pipe.
func ReadFile(path string) ([]byte, error) {
	data, err := safeopen.ReadRegular(path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("the configuration file %s can't be read: %w", path, err)
	}
	return data, nil
}

// Read reads a configuration of at most MaxSize bytes.
func Read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has more than %d bytes, which is the most that is read", MaxSize)
	}
	return data, nil
}

// reason returns err without the path of the file, which the error message contains already.
func reason(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
