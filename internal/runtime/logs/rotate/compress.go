package rotate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// chunk is how many bytes are compressed between two calls of meanwhile.
const chunk = 128 << 10

// compress replaces a file without writers with its compressed version. If it fails, the file still exists. During the
// compression, it calls the function meanwhile repeatedly.
func compress(ctx context.Context, dir directory, file layout.Name, meanwhile func()) error {
	temp, packed := file, file
	temp.Temp, packed.Compressed = true, true
	err := fill(ctx, dir, file, temp, meanwhile)
	if err == nil {
		err = dir.Rename(temp, packed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress a rotated log: %w", err), dir.Remove(temp))
	}
	// The compressed file must be on disk before the original is removed.
	if err := during(dir.Sync, meanwhile); err != nil {
		return fmt.Errorf("compress a rotated log: %w", err)
	}
	return dir.Remove(file)
}

// fill writes the compressed contents of file to temp and syncs it to disk.
func fill(ctx context.Context, dir directory, file, temp layout.Name, meanwhile func()) error {
	from, err := dir.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dir.Create(temp)
	if err != nil {
		return err
	}
	err = pack(ctx, to, from, meanwhile)
	if err == nil {
		err = inherit(to, from)
	}
	if err == nil {
		err = during(to.Sync, meanwhile)
	}
	return errors.Join(err, to.Close())
}

func pack(ctx context.Context, to io.Writer, from io.Reader, meanwhile func()) error {
	buffered := bufio.NewWriterSize(to, chunk)
	packer := gzip.NewWriter(buffered)
	buf := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		meanwhile()
		n, err := from.Read(buf)
		if _, err := packer.Write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(packer.Close(), buffered.Flush())
		}
		if err != nil {
			return err
		}
	}
}

// during runs the function do, which may take long on a busy disk. It calls the function meanwhile periodically until
// do returns.
func during(do func() error, meanwhile func()) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	ticker := time.NewTicker(shortest)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			meanwhile()
		}
	}
}

// inherit copies the owner, mode and modification time of a file to another: readers skip files by their
// modification time.
func inherit(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := to.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	if err := to.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	return setChanged(to, info.ModTime())
}

func setChanged(f *os.File, t time.Time) error {
	at := unix.NsecToTimeval(t.UnixNano())
	return unix.Futimes(int(f.Fd()), []unix.Timeval{at, at})
}
