package mounttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Mirror is a mount that shows another directory, and on which writes fail as long as a test requests this.
type Mirror struct{ server *Server }

// MountMirror mounts a file system at the directory dir that shows the directory source. All changes are made in
// source, which has to be the root of a file system. Otherwise MountMirror works like Mount.
func MountMirror(t testing.TB, source, dir string) *Mirror {
	t.Helper()
	return &Mirror{mount(t, dir, source)}
}

// Fail makes every request that would change a file fail with this error. With EDQUOT, only requests that allocate
// space fail. Zero makes requests succeed again.
func (m *Mirror) Fail(errno unix.Errno) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	what := byte(errno)
	if errno == 0 {
		what = toAnswer
	}
	m.server.order(what)
}

// HoldSyncs makes every fsync of a file wait until release is called or the test ends. Other requests are answered.
func (m *Mirror) HoldSyncs() (release func()) {
	order := func(what byte) {
		m.server.mu.Lock()
		defer m.server.mu.Unlock()
		m.server.order(what)
	}
	order(toHoldSyncs)
	return func() { order(toAnswer) }
}

// mirror is the server's side of a Mirror.
type mirror struct {
	nodes map[uint64]*mirrored
	fails unix.Errno
	// holds says that fsyncs aren't answered. held are the fsync requests that wait.
	holds bool
	held  []inHeader
}

// mirrored is a file that the kernel has looked up. Its node number is its inode number, except for the root directory.
type mirrored struct {
	fd      int // of O_PATH
	lookups uint64
}

func newMirror(source string) (*mirror, error) {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", source, err)
	}
	return &mirror{nodes: map[uint64]*mirrored{rootNode: {fd: fd}}}, nil
}

func (m *mirror) order(what byte) {
	m.fails, m.holds = unix.Errno(what), what == toHoldSyncs
	if what == toAnswer || what == toHang || what == toHoldSyncs {
		m.fails = 0
	}
	if !m.holds {
		for _, in := range m.held {
			_, _ = unix.Write(device, answerTo(in, nil, 0)) // a killed caller doesn't wait for the answer any more
		}
		m.held = nil
	}
}

// Requests that change files: those that allocate space (taking), and others (changing).
var (
	taking   = []uint32{opSymlink, opMknod, opMkdir, opLink, opWrite, opCreate, opFallocate}
	changing = []uint32{opSetattr, opUnlink, opRmdir, opRename, opRename2, opFsync, opFsyncdir}
)

func (m *mirror) result(in inHeader, body []byte) ([]byte, unix.Errno) {
	if m.fails != 0 && (slices.Contains(taking, in.Opcode) ||
		m.fails != unix.EDQUOT && slices.Contains(changing, in.Opcode)) {
		return nil, m.fails
	}
	if m.holds && in.Opcode == opFsync {
		m.held = append(m.held, in)
		return nil, unanswered
	}
	node := m.nodes[in.Node]
	if node == nil && in.Opcode != opInit && in.Opcode != opDestroy && in.Opcode != opBatchForget {
		return nil, unix.ESTALE
	}
	out, err := m.do(in, node, body)
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return nil, errno
	case err != nil:
		return nil, unix.EIO
	}
	return out, 0
}

func (m *mirror) do(in inHeader, node *mirrored, body []byte) ([]byte, error) {
	switch in.Opcode {
	case opInit:
		return encode(initOut{Major: 7, Minor: 31, MaxWrite: 64 << 10, TimeGranularity: 1, Flags: bigWrites}), nil
	case opForget:
		m.forget(in.Node, binary.NativeEndian.Uint64(body))
	case opBatchForget:
		for list := body[8:]; len(list) >= 16; list = list[16:] {
			m.forget(binary.NativeEndian.Uint64(list), binary.NativeEndian.Uint64(list[8:]))
		}
	case opGetattr:
		return m.attr(node.fd)
	case opSetattr:
		return m.setattr(node.fd, body)
	case opReadlink:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(node.fd, "", target)
		return target[:max(n, 0)], err
	case opStatfs:
		return statfs(node.fd)
	case opOpen, opOpendir:
		flags := int(binary.NativeEndian.Uint32(body)) &^
			(unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_NOCTTY)
		fd, err := unix.Open(self(node.fd), flags|unix.O_CLOEXEC, 0)
		return encode(openOut{Handle: uint64(max(fd, 0))}), err
	case opRead, opReaddir, opWrite, opFallocate, opFsync, opFsyncdir, opRelease, opReleasedir:
		return handled(in.Opcode, int(binary.NativeEndian.Uint64(body)), body)
	case opAccess, opDestroy:
	default:
		return m.doNamed(in.Opcode, node.fd, body)
	}
	return nil, nil
}

// handled answers a request about an open file. The handle of the file is its descriptor, fd.
func handled(opcode uint32, fd int, body []byte) ([]byte, error) {
	switch opcode {
	case opRead:
		var in readIn
		if _, err := binary.Decode(body, binary.NativeEndian, &in); err != nil {
			return nil, err
		}
		data := make([]byte, in.Size)
		n, err := unix.Pread(fd, data, int64(in.Offset))
		return data[:max(n, 0)], err
	case opReaddir:
		return readdir(fd, body)
	case opWrite:
		var in writeIn
		n, err := binary.Decode(body, binary.NativeEndian, &in)
		if err != nil {
			return nil, err
		}
		n, err = unix.Pwrite(fd, body[n:], int64(in.Offset))
		return encode(writeOut{Size: uint32(max(n, 0))}), err
	case opFallocate:
		var in fallocateIn
		if _, err := binary.Decode(body, binary.NativeEndian, &in); err != nil {
			return nil, err
		}
		return nil, unix.Fallocate(fd, in.Mode, int64(in.Offset), int64(in.Length))
	case opRelease, opReleasedir:
		return nil, unix.Close(fd)
	}
	return nil, nil // there is nothing to sync
}

// doNamed executes a request that names a file in a directory.
func (m *mirror) doNamed(opcode uint32, dir int, body []byte) ([]byte, error) {
	word := func(n int) uint32 { return binary.NativeEndian.Uint32(body[4*n:]) }
	skip := map[uint32]int{opMknod: 16, opMkdir: 8, opLink: 8, opRename: 8, opRename2: 16, opCreate: 16}[opcode]
	if len(body) < skip {
		return nil, unix.EINVAL
	}
	names := append(bytes.Split(body[skip:], []byte{0}), nil)
	name, second := string(names[0]), string(names[1])
	var err error
	switch opcode {
	case opLookup:
	case opSymlink:
		err = unix.Symlinkat(second, dir, name)
	case opMknod:
		err = unix.Mknodat(dir, name, word(0), int(word(1)))
	case opMkdir:
		err = unix.Mkdirat(dir, name, word(0))
	case opUnlink:
		return nil, unix.Unlinkat(dir, name, 0)
	case opRmdir:
		return nil, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	case opRename, opRename2:
		to := m.nodes[binary.NativeEndian.Uint64(body)]
		if to == nil {
			return nil, unix.ESTALE
		}
		flags := uint(0)
		if opcode == opRename2 {
			flags = uint(word(2))
		}
		return nil, unix.Renameat2(dir, name, to.fd, second, flags)
	case opLink:
		from := m.nodes[binary.NativeEndian.Uint64(body)]
		if from == nil {
			return nil, unix.ESTALE
		}
		err = unix.Linkat(unix.AT_FDCWD, self(from.fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	case opCreate:
		fd, err := unix.Openat(dir, name, int(word(0))|unix.O_CREAT|unix.O_CLOEXEC, word(1))
		if err != nil {
			return nil, err
		}
		entry, err := m.lookup(dir, name)
		return append(entry, encode(openOut{Handle: uint64(fd)})...), err
	default:
		return nil, unix.ENOSYS
	}
	if err != nil {
		return nil, err
	}
	return m.lookup(dir, name)
}

// lookup returns the entry of a file, and counts that the kernel refers to the file from now on.
func (m *mirror) lookup(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	attr, err := stat(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	node := m.nodes[attr.Inode]
	if node == nil {
		node = &mirrored{fd: fd}
		m.nodes[attr.Inode] = node
	} else if err := unix.Close(fd); err != nil {
		return nil, err
	}
	node.lookups++
	return encode(entryOut{Node: attr.Inode, Attr: attr}), nil
}

func (m *mirror) forget(number, lookups uint64) {
	node := m.nodes[number]
	if node == nil || number == rootNode {
		return
	}
	if node.lookups -= lookups; node.lookups == 0 {
		delete(m.nodes, number)
		_ = unix.Close(node.fd) // of O_PATH: nothing can fail
	}
}

func (m *mirror) attr(fd int) ([]byte, error) {
	attr, err := stat(fd)
	return encode(attrOut{Attr: attr}), err
}

func (m *mirror) setattr(fd int, body []byte) ([]byte, error) {
	var in setattrIn
	if _, err := binary.Decode(body, binary.NativeEndian, &in); err != nil {
		return nil, err
	}
	const mode, uid, gid, size, accessed, modified, accessedNow, modifiedNow = 1, 2, 4, 8, 16, 32, 128, 256
	var errs []error
	if in.Valid&(uid|gid) != 0 {
		owner, group := -1, -1
		if in.Valid&uid != 0 {
			owner = int(in.UID)
		}
		if in.Valid&gid != 0 {
			group = int(in.GID)
		}
		errs = append(errs, unix.Fchownat(fd, "", owner, group, unix.AT_EMPTY_PATH))
	}
	if in.Valid&mode != 0 {
		errs = append(errs, unix.Chmod(self(fd), in.Mode&0o7777))
	}
	if in.Valid&size != 0 {
		errs = append(errs, unix.Truncate(self(fd), int64(in.Size)))
	}
	if in.Valid&(accessed|modified) != 0 {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
		if in.Valid&accessed != 0 {
			times[0] = unix.Timespec{Sec: int64(in.Accessed), Nsec: int64(in.AccessedNS)}
		}
		if in.Valid&modified != 0 {
			times[1] = unix.Timespec{Sec: int64(in.Modified), Nsec: int64(in.ModifiedNS)}
		}
		if in.Valid&accessedNow != 0 {
			times[0] = unix.Timespec{Nsec: unix.UTIME_NOW}
		}
		if in.Valid&modifiedNow != 0 {
			times[1] = unix.Timespec{Nsec: unix.UTIME_NOW}
		}
		errs = append(errs, unix.UtimesNanoAt(unix.AT_FDCWD, self(fd), times, 0))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m.attr(fd)
}

// self is a path of an open file.
func self(fd int) string { return fmt.Sprint("/proc/self/fd/", fd) }

func stat(fd int) (attributes, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return attributes{}, err
	}
	return attributes{Inode: st.Ino, Size: uint64(st.Size), Blocks: uint64(st.Blocks), Mode: st.Mode,
		Links: uint32(st.Nlink), Accessed: uint64(st.Atim.Sec), Modified: uint64(st.Mtim.Sec),
		Changed:    uint64(st.Ctim.Sec),
		AccessedNS: uint32(st.Atim.Nsec), ModifiedNS: uint32(st.Mtim.Nsec), ChangedNS: uint32(st.Ctim.Nsec),
		UID: st.Uid, GID: st.Gid, Device: uint32(st.Rdev), BlockSize: uint32(st.Blksize)}, nil
}

func statfs(fd int) ([]byte, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return encode(statfsOut{Blocks: st.Blocks, Free: st.Bfree, Available: st.Bavail,
		Files: st.Files, FilesFree: st.Ffree,
		BlockSize: uint32(st.Bsize), FragmentSize: uint32(st.Frsize), NameLen: uint32(st.Namelen)}), err
}

// readdir reads the entries of a directory from an offset. Entries for which the caller has no room are read again
// later.
func readdir(fd int, body []byte) ([]byte, error) {
	var in readIn
	if _, err := binary.Decode(body, binary.NativeEndian, &in); err != nil {
		return nil, err
	}
	if _, err := unix.Seek(fd, int64(in.Offset), unix.SEEK_SET); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n, err := unix.ReadDirent(fd, buf)
	if err != nil {
		return nil, err
	}
	var list []byte
	for buf = buf[:n]; len(buf) > 0; {
		var next direntHeader
		length := binary.NativeEndian.Uint16(buf[16:])
		name, _, _ := bytes.Cut(buf[19:length], []byte{0})
		next = direntHeader{Inode: binary.NativeEndian.Uint64(buf), Offset: binary.NativeEndian.Uint64(buf[8:]),
			NameLen: uint32(len(name)), Type: uint32(buf[18])}
		buf = buf[length:]
		entry := append(encode(next), name...)
		entry = append(entry, make([]byte, -len(entry)&7)...)
		if len(list)+len(entry) > int(in.Size) {
			break
		}
		list = append(list, entry...)
	}
	return list, nil
}
