package cri

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

// Whatever the answer, and however it is cut into buffers, it is read as protobuf
// would read it, but for what is beyond the limit.
func TestExecCodecReadsProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.Custom(func(t *rapid.T) []byte {
			return bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.SampledFrom([]int{0, 1, 127, 128, ExecOutputLimit - 1, ExecOutputLimit, ExecOutputLimit + 1, 100_000}).Draw(t, "size"))
		})
		var wire []byte
		for range rapid.IntRange(0, 3).Draw(t, "parts") { // more than one is a message whose fields come more than once
			part, err := proto.Marshal(&runtimeapi.ExecSyncResponse{
				Stdout: stream.Draw(t, "stdout"), Stderr: stream.Draw(t, "stderr"), ExitCode: rapid.Int32().Draw(t, "code"),
			})
			if err != nil {
				t.Fatal(err)
			}
			wire = append(unknown(t, wire), part...)
		}
		wire = unknown(t, wire)
		var want runtimeapi.ExecSyncResponse
		if err := proto.Unmarshal(wire, &want); err != nil {
			t.Fatal(err)
		}
		var got ExecResult
		if err := newExecCodec().Unmarshal(cut(t, wire), &got); err != nil {
			t.Fatal(err)
		}
		if got.ExitCode != int(want.ExitCode) || !bytes.Equal(got.Stdout, clip(want.Stdout)) || !bytes.Equal(got.Stderr, clip(want.Stderr)) {
			t.Fatalf("read code %d, %d and %d bytes, want %d, %d and %d", got.ExitCode, len(got.Stdout), len(got.Stderr), want.ExitCode, len(want.Stdout), len(want.Stderr))
		}
		if cap(got.Stdout) > ExecOutputLimit || cap(got.Stderr) > ExecOutputLimit {
			t.Fatalf("keeps %d and %d bytes", cap(got.Stdout), cap(got.Stderr))
		}
	})
}

// What isn't protobuf is an error, and never a crash.
func TestExecCodecReadsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wire := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
		var want runtimeapi.ExecSyncResponse
		var got ExecResult
		err := newExecCodec().Unmarshal(cut(t, wire), &got)
		if proto.Unmarshal(wire, &want) == nil && err == nil && (got.ExitCode != int(want.ExitCode) || !bytes.Equal(got.Stdout, want.Stdout)) {
			t.Fatalf("read %+v, want %v", got, &want)
		}
	})
	for name, wire := range map[string][]byte{
		"cut off in a tag":     {0x80},
		"cut off in a length":  {0x0a},
		"cut off in a field":   {0x0a, 5, 'x'},
		"a length beyond 2^63": {0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"cut off in a code":    {0x18, 0x80},
		"cut off in the next":  {0x18, 1, 0x25, 0},
		"a group":              {0x23, 0x24},
	} {
		if err := newExecCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &ExecResult{}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func clip(b []byte) []byte { return b[:min(len(b), ExecOutputLimit)] }

// unknown adds fields that ExecSyncResponse doesn't have, or has with another type.
func unknown(t *rapid.T, wire []byte) []byte {
	number := rapid.SampledFrom([]protowire.Number{1, 4, 1000}).Draw(t, "number")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(wire, number, protowire.VarintType), rapid.Uint64().Draw(t, "value"))
	case 1:
		return protowire.AppendFixed32(protowire.AppendTag(wire, number, protowire.Fixed32Type), 1)
	case 2:
		return protowire.AppendFixed64(protowire.AppendTag(wire, number, protowire.Fixed64Type), 1)
	case 3:
		return protowire.AppendBytes(protowire.AppendTag(wire, number+4, protowire.BytesType), make([]byte, 300))
	}
	return wire
}

// cut cuts wire into buffers as gRPC might.
func cut(t *rapid.T, wire []byte) mem.BufferSlice {
	var all mem.BufferSlice
	for len(wire) > 0 {
		n := min(len(wire), rapid.SampledFrom([]int{1, 3, 1000, 16 << 10, 1 << 20}).Draw(t, "buffer"))
		all = append(all, mem.SliceBuffer(wire[:n]))
		wire = wire[n:]
	}
	return all
}
