package cri

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of runtime.v1.ExecSyncResponse.
const (
	stdoutField   protowire.Number = 1
	stderrField   protowire.Number = 2
	exitCodeField protowire.Number = 3
)

// execCodec is the protobuf codec, but decodes an ExecSync answer into an *ExecResult: it copies only the needed
// bytes from gRPC's buffers, whereas the default codec copies everything twice.
type execCodec struct{ encoding.CodecV2 }

func newExecCodec() execCodec { return execCodec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (execCodec) Unmarshal(data mem.BufferSlice, v any) error {
	out, ok := v.(*ExecResult)
	if !ok {
		return fmt.Errorf("an answer to ExecSync is read into an ExecResult, not %T", v)
	}
	r := data.Reader()
	defer func() { _ = r.Close() }() // never fails
	for r.Remaining() > 0 {
		if err := out.readField(r); err != nil {
			return fmt.Errorf("the answer to ExecSync is broken: %w", err)
		}
	}
	return nil
}

// readField reads the next field. If a field occurs twice, the last one counts.
func (out *ExecResult) readField(r *mem.Reader) error {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	number, kind := protowire.DecodeTag(tag)
	switch {
	case number == stdoutField && kind == protowire.BytesType:
		out.Stdout, err = beginning(r)
	case number == stderrField && kind == protowire.BytesType:
		out.Stderr, err = beginning(r)
	case number == exitCodeField && kind == protowire.VarintType:
		var code uint64
		code, err = binary.ReadUvarint(r)
		out.ExitCode = int(int32(code))
	default:
		err = skip(r, kind)
	}
	return err
}

// beginning returns the first ExecOutputLimit bytes of a field.
func beginning(r *mem.Reader) ([]byte, error) {
	size, err := length(r)
	if err != nil {
		return nil, err
	}
	output := make([]byte, min(size, ExecOutputLimit))
	if _, err := io.ReadFull(r, output); err != nil {
		return nil, err
	}
	return output, discard(r, size-len(output))
}

// skip skips an unknown field, such as one of a later CRI version.
func skip(r *mem.Reader, kind protowire.Type) error {
	switch kind {
	case protowire.VarintType:
		_, err := binary.ReadUvarint(r)
		return err
	case protowire.Fixed32Type:
		return discard(r, 4)
	case protowire.Fixed64Type:
		return discard(r, 8)
	case protowire.BytesType:
		size, err := length(r)
		if err != nil {
			return err
		}
		return discard(r, size)
	}
	return fmt.Errorf("unknown wire type %d", kind)
}

// length reads the length of a field, which can't exceed the remaining bytes.
func length(r *mem.Reader) (int, error) {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, err
	}
	if size > uint64(r.Remaining()) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(size), nil
}

func discard(r *mem.Reader, size int) error {
	if _, err := r.Discard(size); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}
