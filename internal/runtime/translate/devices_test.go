package translate_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestDevicesReachTheRuntime(t *testing.T) {
	gpu, disk := &runtimeapi.Device{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu3", Permissions: "rw"}, &runtimeapi.Device{ContainerPath: "/dev/x", HostPath: "/dev/sdb", Permissions: "mrw"}
	own, theirs := &runtimeapi.KeyValue{Key: "OWN", Value: []byte("1")}, &runtimeapi.KeyValue{Key: "GPU", Value: []byte("3")}
	data, lib := &runtimeapi.Mount{ContainerPath: "/data"}, &runtimeapi.Mount{ContainerPath: "/usr/lib/gpu"}
	cfg := container(t, webPod(), func(in *translate.ContainerInput) {
		in.Env, in.Mounts, in.Devices = []*runtimeapi.KeyValue{own}, []*runtimeapi.Mount{data}, []*runtimeapi.Device{disk}
		for _, d := range []translate.Devices{
			{Assignment: translate.Assignment{CPUs: "2-3", Mems: "0", NoQuota: true}},
			{Devices: []*runtimeapi.Device{gpu}, CDI: []string{"vendor.com/gpu=3"}, Env: []*runtimeapi.KeyValue{theirs}, Mounts: []*runtimeapi.Mount{lib},
				Annotations: map[string]string{"vendor.com/gpu": "3", translate.AnnotationHash: "forged"}},
			{CDI: []string{"vendor.com/nic=0"}, Annotations: map[string]string{"vendor.com/nic": "0"}},
			{},
		} {
			in.AddDevices(d)
		}
	})
	r := cfg.Linux.Resources
	equal(t, "CPUs, memory nodes, and no quota", []any{r.CpusetCpus, r.CpusetMems, r.CpuQuota}, []any{"2-3", "0", int64(-1)})
	equal(t, "devices", cfg.Devices, []*runtimeapi.Device{disk, gpu})
	equal(t, "CDI", cfg.CDIDevices, []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=3"}, {Name: "vendor.com/nic=0"}})
	equal(t, "environment", cfg.Envs, []*runtimeapi.KeyValue{theirs, own})
	equal(t, "mounts", cfg.Mounts, []*runtimeapi.Mount{lib, data})
	equal(t, "annotations", []string{cfg.Annotations["vendor.com/gpu"], cfg.Annotations["vendor.com/nic"]}, []string{"3", "0"})
	if h := cfg.Annotations[translate.AnnotationHash]; h == "forged" || h == "" {
		t.Errorf("an annotation of our own was changed: %q", h)
	}
}

func TestBlockDevices(t *testing.T) {
	c := &v1.Container{Name: "a", VolumeDevices: []v1.VolumeDevice{{Name: "db", DevicePath: "/dev/db"}, {Name: "base", DevicePath: "/dev/base"}}}
	volumes := map[string]pod.BlockVolume{"db": {HostPath: "/dev/loop1"}, "base": {HostPath: "/dev/loop2", ReadOnly: true}, "other": {HostPath: "/dev/loop3"}}
	got, err := translate.BlockDevices(c, volumes)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "devices", got, []*runtimeapi.Device{
		{ContainerPath: "/dev/db", HostPath: "/dev/loop1", Permissions: "mrw"}, {ContainerPath: "/dev/base", HostPath: "/dev/loop2", Permissions: "r"},
	})
	delete(volumes, "db")
	if _, err := translate.BlockDevices(c, volumes); err == nil || !strings.Contains(err.Error(), `container a: volumeDevices: volume "db"`) {
		t.Errorf("a volume that isn't there: %v", err)
	}
	if got, err := translate.BlockDevices(&v1.Container{}, nil); got != nil || err != nil {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
}
