package stats

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// disk contains the measurements for the disk part of a sample.
type disk struct {
	filesystems map[string]usage.Answer[unix.Statfs_t]
	dirs        map[string]usage.Answer[usage.Usage]
	layers      map[types.UID]usage.Answer[map[string]usage.Usage]
	volumes     map[types.UID][]volume.Instance
	node, image usage.Answer[unix.Statfs_t]
}

// measureDisk adds the disk usage to the sample. If a measurement takes too long, the sample has an earlier result with
// the time of that result, or none.
func (s *Sampler) measureDisk(ctx context.Context, out *Sample, faults *faults) {
	images, containers, err := s.imageFileSystems(ctx)
	faults.add(err)
	d := disk{volumes: map[types.UID][]volume.Instance{}, filesystems: map[string]usage.Answer[unix.Statfs_t]{},
		dirs: map[string]usage.Answer[usage.Usage]{}, layers: map[types.UID]usage.Answer[map[string]usage.Usage]{}}
	asked := []string{s.RootDir}
	for _, f := range []*runtimeapi.FilesystemUsage{images, containers} {
		if at := f.GetFsId().GetMountpoint(); at != "" {
			asked = append(asked, at)
		}
	}
	for _, v := range s.Volumes.Instances() {
		if v.Spec.Block() || v.Spec.Volume.HostPath != nil || v.Spec.Volume.Image != nil {
			continue // volumes elsewhere on the host don't count as the pod's, as with the kubelet
		}
		d.volumes[v.UID] = append(d.volumes[v.UID], v)
		asked = append(asked, v.Path())
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	for i, answer := range s.FileSystems.FileSystems(ctx, asked, usage.Fresh) {
		d.filesystems[asked[i]] = answer
	}
	d.node = d.filesystems[s.RootDir]
	if d.node.Err != nil {
		faults.add(d.node.Err)
	}
	s.walk(ctx, out.Pods, &d, faults)

	out.NodeFS = fileSystem(d.node)
	out.ImageFS = ofRuntime(images, d.filesystems[images.GetFsId().GetMountpoint()])
	out.ContainerFS = ofRuntime(containers, d.filesystems[containers.GetFsId().GetMountpoint()])
	d.image = d.filesystems[containers.GetFsId().GetMountpoint()]
	if out.Level == Detailed {
		out.ImageAt = d.image.At
		names := s.mounts.Get(ctx, []string{s.RootDir, containers.GetFsId().GetMountpoint()}, walkPatience, walkRevise)
		out.Device, out.ImageDevice = names[0].Value.Source, names[1].Value.Source
	}
	for i := range out.Pods {
		s.addDisk(&out.Pods[i], &d)
	}
}

// imageFileSystems returns the runtime's file systems for images and for containers, which may be the same. If there is
// an error, they may be those of an earlier response.
func (s *Sampler) imageFileSystems(ctx context.Context) (images, containers *runtimeapi.FilesystemUsage, err error) {
	answer := s.images.Get(ctx, []string{"the runtime"}, walkPatience, walkRevise)[0] // bounded if the runtime hangs
	info := answer.Value
	if l := info.GetImageFilesystems(); len(l) > 0 {
		images = l[0]
	}
	if containers = images; len(info.GetContainerFilesystems()) > 0 {
		containers = info.ContainerFilesystems[0]
	}
	return images, containers, answer.Err
}

// walk gets the usages that require walking through directories: container layers, logs, and volumes that are
// directories on the node's file system.
func (s *Sampler) walk(ctx context.Context, pods []Pod, d *disk, faults *faults) {
	var uids, dirs, logs []string
	for i := range pods {
		p := &pods[i]
		if len(p.Containers) > 0 {
			uids = append(uids, string(p.UID))
		}
		for j := range p.Containers {
			logs = append(logs, s.logDir(p, &p.Containers[j]))
		}
		for j := range d.volumes[p.UID] {
			if v := &d.volumes[p.UID][j]; s.VolumesEvery >= 0 && d.onNode(v) {
				dirs = append(dirs, v.Path())
			}
		}
	}
	began := time.Now()
	for i, answer := range s.layers.Get(ctx, uids, walkPatience, walkRevise) {
		faults.add(answer.Err)
		d.layers[types.UID(uids[i])] = answer
	}
	add := func(from *usage.Answers[usage.Usage], dirs []string) {
		for i, answer := range from.Get(ctx, dirs, max(0, walkPatience-time.Since(began)), walkRevise) {
			faults.add(answer.Err)
			d.dirs[dirs[i]] = answer
		}
	}
	add(s.logs, logs)
	add(s.dirs, dirs)
}

func (s *Sampler) logDir(p *Pod, c *Container) string {
	return filepath.Join(s.Logs, layout.PodDirectory(p.Namespace, p.Name, p.UID), c.Name)
}

// onNode reports whether a volume is a directory on the node's file system, rather than a file system of its own.
func (d *disk) onNode(v *volume.Instance) bool {
	own := d.filesystems[v.Path()]
	return v.Spec.Claim == nil && own.Err == nil && d.node.Err == nil && own.Value.Fsid == d.node.Value.Fsid &&
		own.Value.Type == d.node.Value.Type && own.Value.Blocks == d.node.Value.Blocks
}

// addDisk adds a pod's disk usage.
func (s *Sampler) addDisk(p *Pod, d *disk) {
	var sum usage.Usage
	var latest time.Time
	count := func(u usage.Usage, at time.Time) {
		sum = sum.Add(u)
		if at.After(latest) {
			latest = at
		}
	}
	layers := d.layers[p.UID]
	failed := unknown(layers) // a part was never measured: the sum would be too small
	for i := range p.Containers {
		c := &p.Containers[i]
		if u, ok := layers.Value[c.Name]; ok && u != (usage.Usage{}) {
			c.Rootfs = part(d.image, u, layers.At)
			count(u, layers.At)
		}
		logs := d.dirs[s.logDir(p, c)]
		failed = failed || unknown(logs)
		if !logs.At.IsZero() {
			c.Logs = part(d.node, logs.Value, logs.At)
			count(logs.Value, logs.At)
		}
	}
	for i := range d.volumes[p.UID] {
		v := &d.volumes[p.UID][i]
		var fs *statsapi.FsStats
		if d.onNode(v) {
			walked := d.dirs[v.Path()]
			failed = failed || unknown(walked)
			if walked.At.IsZero() {
				continue
			}
			fs = part(d.node, walked.Value, walked.At)
			count(walked.Value, walked.At)
		} else if fs = fileSystem(d.filesystems[v.Path()]); fs == nil {
			continue
		}
		entry := statsapi.VolumeStats{Name: v.Spec.Volume.Name, FsStats: *fs}
		if c := v.Spec.Claim; c != nil {
			entry.PVCRef = &statsapi.PVCReference{Name: c.Name, Namespace: c.Namespace}
		}
		p.Volumes = append(p.Volumes, entry)
	}
	slices.SortFunc(p.Volumes, func(a, b statsapi.VolumeStats) int { return strings.Compare(a.Name, b.Name) })
	if !latest.IsZero() && !failed {
		p.Ephemeral = part(d.node, sum, latest)
	}
}

// unknown reports whether a value has never been measured.
func unknown[V any](a usage.Answer[V]) bool { return a.Err != nil && a.At.IsZero() }

// fileSystem returns the statistics of a whole file system; nil if there are none.
func fileSystem(a usage.Answer[unix.Statfs_t]) *statsapi.FsStats {
	if a.Err != nil || a.At.IsZero() {
		return nil
	}
	st := usage.StatsOf(&a.Value)
	return &statsapi.FsStats{Time: metav1.NewTime(a.At), CapacityBytes: &st.Capacity, AvailableBytes: &st.Available,
		UsedBytes: &st.Used,
		Inodes:    &st.Inodes, InodesFree: &st.InodesFree, InodesUsed: &st.InodesUsed}
}

// part returns the statistics of a part of a file system.
func part(of usage.Answer[unix.Statfs_t], u usage.Usage, at time.Time) *statsapi.FsStats {
	fs := fileSystem(of)
	if fs == nil {
		fs = &statsapi.FsStats{}
	}
	fs.Time = metav1.NewTime(at)
	fs.UsedBytes, fs.InodesUsed = ptr.To(uint64(max(u.Bytes, 0))), ptr.To(uint64(max(u.Inodes, 0)))
	return fs
}

// ofRuntime returns the statistics of the runtime's part of a file system.
func ofRuntime(f *runtimeapi.FilesystemUsage, of usage.Answer[unix.Statfs_t]) *statsapi.FsStats {
	if f == nil {
		return nil
	}
	fs := part(of, usage.Usage{Bytes: int64(f.GetUsedBytes().GetValue()), Inodes: int64(f.GetInodesUsed().GetValue())},
		time.Unix(0, f.GetTimestamp()))
	if f.GetInodesUsed() == nil {
		fs.InodesUsed = nil
	}
	return fs
}
