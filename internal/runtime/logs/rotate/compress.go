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

// chunk is how much is compressed between two looks at the context.
const chunk = 128 << 10

// compress puts a compressed file in the place of one that nobody writes to. If it
// fails, the file is still there.
func compress(ctx context.Context, dir directory, file layout.Name) error {
	temp, packed := file, file
	temp.Temp, packed.Compressed = true, true
	err := fill(ctx, dir, file, temp)
	if err == nil {
		err = dir.Rename(temp, packed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress a rotated log: %w", err), dir.Remove(temp))
	}
	// The one must not be gone from the disk before the other is there.
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("compress a rotated log: %w", err)
	}
	return dir.Remove(file)
}

// fill writes to temp, and to the disk, what file holds, compressed.
func fill(ctx context.Context, dir directory, file, temp layout.Name) error {
	from, err := dir.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dir.Create(temp)
	if err != nil {
		return err
	}
	err = pack(ctx, to, from)
	if err == nil {
		err = inherit(to, from)
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

func pack(ctx context.Context, to io.Writer, from io.Reader) error {
	buffered := bufio.NewWriterSize(to, chunk)
	packer := gzip.NewWriter(buffered)
	buf := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
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
