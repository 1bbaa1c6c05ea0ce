package rotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// directory is a container's log directory; layout.ContainerDir implements it.
type directory interface {
	Files(attempt int) ([]layout.Name, error)
	Open(layout.Name) (*os.File, error)
	Create(layout.Name) (*os.File, error)
	Rename(from, to layout.Name) error
	Remove(layout.Name) error
	Sync() error
	Close() error
}

// rotate renames the log if it is too large, and makes the runtime create a new one. If the log is missing, because
// an agent died after renaming it, rotate only makes the runtime create one.
func (r *Rotator) rotate(ctx context.Context, c *container, conf *Config) error {
	dir, err := r.open(conf.Root, c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	files, err := rotated(dir, c.file.Attempt)
	if err != nil {
		return err
	}
	size, err := sizeOf(dir, c.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.log.V(2).Info("A running container's log is missing, so the runtime is asked to make a new one",
			"pod", logging.Ref(c.Pod), "containerName", c.Name)
		if err := r.reopen(ctx, dir, c, newestPlain(files)); err != nil {
			return err
		}
		if _, err := sizeOf(dir, c.file); err != nil {
			// Without this error, the call would be repeated endlessly.
			return fmt.Errorf("the runtime was asked to make a new log, and has not: %w", err)
		}
		return nil
	case err != nil:
		return err
	case size < conf.MaxSize, conf.MaxSize <= 0:
		return nil // the log was rotated meanwhile
	}
	// Failing to remove excess files must not prevent the rotation: tidy reports it.
	_ = removeExcess(dir, files, conf.MaxFiles-2)
	renamed, err := rotatedName(c.file, files)
	if err != nil {
		return err
	}
	if err := dir.Rename(c.file, renamed); err != nil {
		return err
	}
	c.untidy = true
	if err := r.reopen(ctx, dir, c, renamed); err != nil {
		return err
	}
	r.log.V(2).Info("Rotated a container's log", "pod", logging.Ref(c.Pod), "containerName", c.Name, "size", size,
		"path", renamed.String())
	return nil
}

// reopen makes the runtime create a new log after the current one was renamed; renamed is its new name. If that
// fails, reopen undoes the renaming.
func (r *Rotator) reopen(ctx context.Context, dir directory, c *container, renamed layout.Name) error {
	err := r.runtime.ReopenContainerLog(ctx, c.ID)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("have the runtime reopen the log of container %s in pod %s: %w", c.Name, c.Pod, err)
	if renamed == (layout.Name{}) {
		return err
	}
	// If the runtime has created a new file in spite of its error, the renaming isn't undone: the next tidy checks
	// whether the runtime writes to the new file.
	if back := dir.Rename(renamed, c.file); back != nil && !errors.Is(back, fs.ErrExist) {
		err = errors.Join(err, back)
	}
	return err
}

// rotated lists the rotated files of an instance's log, oldest first, without unfinished ones.
func rotated(dir directory, attempt int) ([]layout.Name, error) {
	files, err := dir.Files(attempt)
	return slices.DeleteFunc(files, func(n layout.Name) bool { return n.Stamp == "" || n.Temp }), err
}

// newestPlain returns the newest file if it isn't compressed, else an empty name.
func newestPlain(files []layout.Name) layout.Name {
	if len(files) == 0 || files[len(files)-1].Compressed {
		return layout.Name{}
	}
	return files[len(files)-1]
}

// removeExcess removes the oldest rotations so that at most keep rotations are left.
func removeExcess(dir directory, files []layout.Name, keep int) error {
	var errs []error
	for excess := countStamps(files) - max(0, keep); excess > 0; excess-- {
		for oldest := files[0].Stamp; len(files) > 0 && files[0].Stamp == oldest; files = files[1:] {
			errs = append(errs, dir.Remove(files[0]))
		}
	}
	return errors.Join(errs...)
}

// countStamps counts the rotations from which the sorted files come: a file and its compressed version count once.
func countStamps(files []layout.Name) int {
	n, last := 0, ""
	for _, f := range files {
		if f.Stamp != last {
			n, last = n+1, f.Stamp
		}
	}
	return n
}

// rotatedName returns the name of the log after its rotation.
func rotatedName(file layout.Name, files []layout.Name) (layout.Name, error) {
	newest := ""
	if len(files) > 0 {
		newest = files[len(files)-1].Stamp
	}
	stamp, err := layout.NextStamp(time.Now(), newest)
	file.Stamp = stamp
	return file, err
}

func sizeOf(dir directory, file layout.Name) (int64, error) {
	f, err := dir.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// isWritten reports whether a rotated file is open for writing in any process. It returns false if the kernel can't
// report that.
func isWritten(dir directory, file layout.Name) (bool, error) {
	f, err := dir.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	written, err := filewatch.HasWriter(f)
	if errors.Is(err, filewatch.ErrUnknown) {
		return false, nil
	}
	return written, err
}
