package mounttest

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// The parts of the protocol between the kernel and a FUSE server that these servers support. The layouts are those of
// include/uapi/linux/fuse.h, protocol 7.31 (https://docs.kernel.org/filesystems/fuse/fuse.html), in the machine's byte
// order.

const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opReadlink    = 5
	opSymlink     = 6
	opMknod       = 8
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opLink        = 13
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opAccess      = 34
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43
	opRename2     = 45
)

// bigWrites is the flag of a server that accepts writes of more than 4096 bytes.
const bigWrites = 1 << 5

const (
	rootNode = 1 // FUSE_ROOT_ID
	fileNode = 2
)

type inHeader struct {
	Len, Opcode    uint32
	Unique, Node   uint64
	UID, GID, PID  uint32
	ExtLen, Unused uint16
}

type outHeader struct {
	Len    uint32
	Error  int32
	Unique uint64
}

type initOut struct {
	Major, Minor, MaxReadahead, Flags uint32
	MaxBackground, Congestion         uint16
	MaxWrite, TimeGranularity         uint32
	MaxPages, Alignment               uint16
	Flags2                            uint32
	Unused                            [7]uint32
}

type attributes struct {
	Inode, Size, Blocks               uint64
	Accessed, Modified, Changed       uint64
	AccessedNS, ModifiedNS, ChangedNS uint32
	Mode, Links, UID, GID, Device     uint32
	BlockSize, Flags                  uint32
}

type attrOut struct {
	Valid        uint64
	ValidNS, Pad uint32
	Attr         attributes
}

type entryOut struct {
	Node, Generation, EntryValid, AttrValid uint64
	EntryValidNS, AttrValidNS               uint32
	Attr                                    attributes
}

type openOut struct {
	Handle    uint64
	Flags     uint32
	BackingID int32
}

type readIn struct {
	Handle, Offset  uint64
	Size, ReadFlags uint32
	LockOwner       uint64
	Flags, Pad      uint32
}

type writeIn struct {
	Handle, Offset   uint64
	Size, WriteFlags uint32
	LockOwner        uint64
	Flags, Pad       uint32
}

type writeOut struct{ Size, Pad uint32 }

type fallocateIn struct {
	Handle, Offset, Length uint64
	Mode, Pad              uint32
}

type setattrIn struct {
	Valid, Pad                        uint32
	Handle, Size, LockOwner           uint64
	Accessed, Modified, Changed       uint64
	AccessedNS, ModifiedNS, ChangedNS uint32
	Mode, Unused, UID, GID, Unused2   uint32
}

type direntHeader struct {
	Inode, Offset uint64
	NameLen, Type uint32
}

type statfsOut struct {
	Blocks, Free, Available, Files, FilesFree uint64
	BlockSize, NameLen, FragmentSize, Pad     uint32
	Unused                                    [6]uint32
}

// answer returns the bytes to send for a request. The function result determines the answer's content and error.
// Nothing is sent for requests that have no answer.
func answer(request []byte, result func(inHeader, []byte) ([]byte, unix.Errno)) []byte {
	var in inHeader
	n, err := binary.Decode(request, binary.NativeEndian, &in)
	if err != nil {
		return nil
	}
	body, errno := result(in, request[n:])
	if in.Opcode == opForget || in.Opcode == opBatchForget || in.Opcode == opInterrupt || errno == unanswered {
		return nil
	}
	return answerTo(in, body, errno)
}

// unanswered is returned instead of an error to send no answer to a request for now.
const unanswered unix.Errno = 0xffff

// answerTo returns the answer to a request.
func answerTo(in inHeader, body []byte, errno unix.Errno) []byte {
	size := uint32(binary.Size(outHeader{}) + len(body))
	return append(encode(outHeader{Len: size, Error: -int32(errno), Unique: in.Unique}), body...)
}

func result(in inHeader, body []byte) ([]byte, unix.Errno) {
	switch in.Opcode {
	case opInit:
		return encode(initOut{Major: 7, Minor: 31, MaxWrite: 4096, TimeGranularity: 1}), 0
	case opLookup:
		if in.Node != rootNode || string(body) != File+"\x00" {
			return nil, unix.ENOENT
		}
		// The cache times are zero, so the kernel asks the server each time.
		return encode(entryOut{Node: fileNode, Attr: attributesOf(fileNode)}), 0
	case opGetattr:
		return encode(attrOut{Attr: attributesOf(in.Node)}), 0
	case opOpen, opOpendir:
		return encode(openOut{}), 0
	case opRead:
		return part([]byte(Content), body)
	case opReaddir:
		return part(listing(), body)
	case opStatfs:
		return encode(statfsOut{Blocks: 8, Files: 2, BlockSize: 4096, FragmentSize: 4096, NameLen: 255}), 0
	case opRelease, opReleasedir, opAccess, opDestroy:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func attributesOf(node uint64) attributes {
	if node == rootNode {
		return attributes{Inode: node, Mode: unix.S_IFDIR | 0o755, Links: 2, BlockSize: 4096}
	}
	return attributes{Inode: node, Size: uint64(len(Content)), Blocks: 1, Mode: unix.S_IFREG | 0o644, Links: 1,
		BlockSize: 4096}
}

// part returns the part of all that a read request asks for.
func part(all, body []byte) ([]byte, unix.Errno) {
	var in readIn
	if _, err := binary.Decode(body, binary.NativeEndian, &in); err != nil {
		return nil, unix.EINVAL
	}
	from := min(in.Offset, uint64(len(all)))
	return all[from:min(from+uint64(in.Size), uint64(len(all)))], 0
}

// listing returns the root directory's only entry. The entry is shorter than any caller's buffer, so its length can be
// the offset of the next entry.
func listing() []byte {
	entry := direntHeader{Inode: fileNode, NameLen: uint32(len(File)), Type: unix.DT_REG}
	size := (binary.Size(entry) + len(File) + 7) &^ 7
	entry.Offset = uint64(size)
	list := append(encode(entry), File...)
	return append(list, make([]byte, size-len(list))...)
}

func encode(v any) []byte {
	out, err := binary.Append(make([]byte, 0, math.MaxUint8), binary.NativeEndian, v)
	if err != nil {
		return nil // happens only for types without a fixed size, and all types here have one
	}
	return out
}
