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

// chunk is how much is compressed between two looks at what can't wait.
const chunk = 128 << 10

// compress puts a compressed file in the place of one that nobody writes to. If it
// fails, the file is still there. It calls meanwhile again and again.
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
	// The one must not be gone from the disk before the other is there.
	if err := during(dir.Sync, meanwhile); err != nil {
		return fmt.Errorf("compress a rotated log: %w", err)
	}
	return dir.Remove(file)
}

// fill writes to temp, and to the disk, what file holds, compressed.
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

// during does what may take long, as a disk that is busy with a flood of logs has it, and calls meanwhile until that is
// done.
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

// inherit gives a file the owner and the mode of another, and the time of its last
// change: a reader sees by that which files are too old for it.
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
