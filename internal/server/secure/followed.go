package secure

import (
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/go-logr/logr"
)

// followed caches the content of files and reads them again when they change. While they are unusable, the last
// usable content stays in effect.
type followed[T any] struct {
	// what describes the files in error messages, with the setting that names them.
	what  string
	paths []string
	read  func() (T, error)
	log   logr.Logger

	mu   sync.Mutex
	seen []fs.FileInfo // nil before the first successful read
	last T
	// reported is set once an error of the files was logged.
	reported bool
}

// current returns the content of the files. After the first success it returns no error.
func (f *followed[T]) current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := stat(f.paths)
	if err == nil && f.unchanged(now) {
		return f.last, nil
	}
	var read T
	if err == nil {
		read, err = f.read()
	}
	if err == nil {
		if f.reported {
			f.log.Info("Files of the HTTPS server can be used again", "path", f.paths[0])
		}
		f.seen, f.last, f.reported = now, read, false
		return read, nil
	}
	err = fmt.Errorf("%s: %w", f.what, err)
	if f.seen == nil {
		return f.last, err
	}
	if !f.reported {
		f.reported = true
		f.log.Error(err, "The last version of the HTTPS server's files that could be used counts on")
	}
	return f.last, nil
}

func stat(paths []string) ([]fs.FileInfo, error) {
	var all []fs.FileInfo
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

func (f *followed[T]) unchanged(now []fs.FileInfo) bool {
	if f.seen == nil {
		return false
	}
	for i, was := range f.seen {
		if !os.SameFile(was, now[i]) || !was.ModTime().Equal(now[i].ModTime()) || was.Size() != now[i].Size() {
			return false
		}
	}
	return true
}
