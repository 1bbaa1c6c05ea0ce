// Package stats samples the resource usage of pods, their containers and the node: CPU, memory, disk, network,
// processes. It measures only on request. A request states how old its sample may be, so that several requests can
// share one sample.
package stats

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Config configures a Sampler. All fields but SystemGroups are required.
type Config struct {
	Node string
	// Started is when the agent was started.
	Started  time.Time
	Groups   *tree.Tree
	Observed interface{ All() []*pod.Observed }
	Volumes  interface{ Instances() []volume.Instance }
	// FileSystems reads the statistics of file systems.
	FileSystems *usage.StatsReader
	Layers      interface {
		WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error)
	}
	Meter interface {
		Measure(ctx context.Context, dir string) (usage.Usage, error)
	}
	Runtime interface {
		ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
		SandboxImage(ctx context.Context, id string) (string, error)
	}
	// VolumesEvery is the maximum age of volumes' usage that requires walking through directories. A negative value
	// disables it (volumeStatsAggPeriod).
	VolumesEvery time.Duration
	// RootDir is on the node's file system. Logs is the directory of all pods' logs.
	RootDir, Logs string
	// Memory and Swap are the machine's memory and swap space, in bytes.
	Memory, Swap int64
	// SystemGroups maps statsapi's names of system containers to cgroups.
	SystemGroups map[string]string
	Log          logr.Logger
}

// Level is the level of detail of a sample. A higher level includes the lower ones.
type Level int

const (
	// CPUAndMemory is CPU and memory of the node, pods and containers.
	CPUAndMemory Level = iota
	// Full adds disk, network and processes.
	Full
	// Detailed adds limits, how often they were hit, and the usage of sandboxes.
	Detailed
)

// Group is the usage of a cgroup.
type Group struct {
	// Path is the group's name.
	Path string
	counters.Figures
	// Rate is the current CPU usage in billionths of a CPU; nil if it is unavailable.
	Rate *uint64
}

// Sample is the usage at one time. It is immutable. Values that couldn't be read are nil or missing.
type Sample struct {
	At    time.Time
	Level Level
	// Booted is when the machine was booted; zero if that can't be read.
	Booted time.Time
	Node   Group
	// System are the groups that don't belong to single pods, sorted by name.
	System []System
	// Rest is the machine's usage without that of the other System groups. It is set only if a System group is called
	// misc.
	Rest Group
	// Pods are the pods with a running container, by namespace and name. If several pods have the same name, as while
	// an old one terminates, the newest is first.
	Pods []Pod

	Network    *statsapi.NetworkStats
	Interfaces []Interface
	// Disks are the machine's disks; only with Detailed.
	Disks                        []Disk
	NodeFS, ImageFS, ContainerFS *statsapi.FsStats
	Processes                    *statsapi.RlimitStats
	// Device and ImageDevice are the devices of NodeFS and ContainerFS.
	Device, ImageDevice string
	// ImageAt is when the statistics of ContainerFS's file system were read.
	ImageAt time.Time
}

// System is a cgroup that doesn't belong to a single pod.
type System struct {
	// Name is the name of the system container in package statsapi.
	Name    string
	Started time.Time
	Group
}

// Pod is the usage of one pod.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Started         time.Time
	Group
	// Containers are the running containers by name. Of instances with the same name, the newest is first.
	Containers []Container
	// SandboxID, SandboxImage and Sandbox describe the sandbox, which has a cgroup of its own.
	SandboxID, SandboxImage string
	Sandbox                 Group
	// Network is nil for pods on the host network.
	Network    *statsapi.NetworkStats
	Interfaces []Interface
	Volumes    []statsapi.VolumeStats
	// Processes is the number of processes. InSandbox describes those of the sandbox.
	Processes *uint64
	InSandbox Running
	// Ephemeral is the disk usage on the node that counts as the pod's ephemeral storage.
	Ephemeral *statsapi.FsStats

	observed *pod.Observed
}

// Container is the usage of one instance of a container.
type Container struct {
	Name, ID, Image string
	Started         time.Time
	Group
	Rootfs, Logs *statsapi.FsStats
	Running
}

// Running describes the processes of a container or sandbox.
type Running struct {
	// Processes is the number of processes.
	Processes int
	// Files counts the processes' open files; only with Detailed.
	Files *Files
}

// Sampler makes samples. Its methods are safe for concurrent use.
type Sampler struct {
	Config
	walks  context.Context // ends with Run
	end    context.CancelFunc
	layers *usage.Answers[map[string]usage.Usage]
	dirs   *usage.Answers[usage.Usage]
	logs   *usage.Answers[usage.Usage]
	images *usage.Answers[*runtimeapi.ImageFsInfoResponse]
	// sandboxes are the images of sandboxes, by ID.
	sandboxes *usage.Answers[string]
	// mounts are the mounts that contain directories, by path.
	mounts *usage.Answers[mounts.Entry]
	turn   chan struct{}

	// The holder of turn owns the following fields.
	last     *Sample
	paths    map[types.UID]*paths
	rates    rates
	rest     rest
	readers  []*counters.Reader
	failures [Detailed + 1]string // by level
}

// paths are the cgroups of a pod.
type paths struct {
	pod        string
	containers map[string]string // by ID, including the sandbox's
}

const (
	// walkedFor is how long the usage of a layer or of logs is cached: as long as by the kubelet and its runtimes.
	walkedFor = time.Minute
	// walkPatience is how long a sample waits for directories that have no usage yet, walkRevise how long it waits
	// for newer usages of the others.
	walkPatience, walkRevise = time.Second, 30 * time.Millisecond
	// imagesFor is how long the runtime's file system statistics are cached.
	imagesFor = 10 * time.Second
	// sandboxesFor is how long the image of a sandbox, which doesn't change, is cached.
	sandboxesFor = time.Hour
	// endPatience is how long Run waits at its end for file systems that don't respond.
	endPatience = 2 * time.Second
)

// New returns a Sampler that measures only on request.
func New(c Config) *Sampler {
	s := &Sampler{Config: c, turn: make(chan struct{}, 1), paths: map[types.UID]*paths{},
		rates: rates{known: map[string]history{}}}
	s.walks, s.end = context.WithCancel(context.Background())
	s.layers = usage.NewAnswers(walkedFor, func(uid string) (map[string]usage.Usage, error) {
		return c.Layers.WritableLayer(s.walks, types.UID(uid))
	})
	s.dirs = usage.NewAnswers(c.VolumesEvery, func(dir string) (usage.Usage, error) {
		return c.Meter.Measure(s.walks, dir)
	})
	s.images = usage.NewAnswers(imagesFor, func(string) (*runtimeapi.ImageFsInfoResponse, error) {
		return c.Runtime.ImageFsInfo(s.walks)
	})
	s.sandboxes = usage.NewAnswers(sandboxesFor, func(id string) (string, error) {
		return c.Runtime.SandboxImage(s.walks, id)
	})
	s.mounts = usage.NewAnswers(walkedFor, mountOf)
	s.logs = usage.NewAnswers(walkedFor, func(dir string) (usage.Usage, error) {
		u, err := c.Meter.Measure(s.walks, dir)
		var own unix.Stat_t
		if err == nil && unix.Lstat(dir, &own) == nil && u.Inodes > 0 { // the directory itself isn't a log
			u = u.Add(usage.Usage{Bytes: -own.Blocks * 512, Inodes: -1})
		}
		return u, err
	})
	return s
}

// Run waits until ctx ends, and then cancels running measurements.
func (s *Sampler) Run(ctx context.Context) error {
	<-ctx.Done()
	s.end()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if err := errors.Join(s.layers.Close(end), s.dirs.Close(end), s.logs.Close(end), s.images.Close(end),
		s.sandboxes.Close(end), s.mounts.Close(end)); err != nil {
		s.Log.Info("A file system doesn't answer", "err", err)
	}
	return nil
}

// Sample returns a sample of at least this level that is at most maxAge old. It waits for a sample in progress.
func (s *Sampler) Sample(ctx context.Context, level Level, maxAge time.Duration) (*Sample, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if l := s.last; l != nil && l.Level >= level && time.Since(l.At) <= maxAge {
		return l, nil
	}
	sample, err := s.sample(ctx, level)
	if err != nil {
		return nil, err
	}
	s.last = sample
	return sample, nil
}

func (s *Sampler) sample(ctx context.Context, level Level) (*Sample, error) {
	for len(s.readers) < runtime.GOMAXPROCS(0) {
		r, err := s.Groups.Reader(ctx)
		if err != nil {
			return nil, err
		}
		s.readers = append(s.readers, r)
	}
	out := &Sample{At: time.Now(), Level: level, Booted: bootTime(), Pods: s.pods()}
	var faults faults
	s.readGroups(out, level, &faults)
	s.rates.update(out)
	if err := s.rates.second(ctx, s.readers[0]); err != nil {
		return nil, err
	}
	s.rest.update(out)
	if level >= Full {
		s.measureDisk(ctx, out, &faults)
		out.Interfaces, out.Network = hostNetwork()
		out.Processes = hostProcesses()
	}
	if level == Detailed {
		s.nameSandboxes(ctx, out.Pods, &faults)
		out.Disks = disks()
	}
	s.logFaults(&faults, level)
	return out, nil
}

// pods returns the pods with a running container, like the kubelet.
func (s *Sampler) pods() []Pod {
	all := s.Observed.All()
	list := make([]Pod, 0, len(all))
	known := make(map[types.UID]*paths, len(all))
	for _, o := range all {
		p := Pod{UID: o.UID, Namespace: o.Namespace, Name: o.Name, observed: o}
		if len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
			p.SandboxID, p.Started = o.Sandboxes[0].ID, o.Sandboxes[0].CreatedAt
		}
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.ContainerRunning {
				p.Containers = append(p.Containers,
					Container{Name: c.Name, ID: c.ID, Image: c.Image, Started: c.CreatedAt})
			}
		}
		if len(p.Containers) == 0 {
			continue
		}
		slices.SortFunc(p.Containers, func(a, b Container) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), b.Started.Compare(a.Started))
		})
		list = append(list, p)
		if known[o.UID] = s.paths[o.UID]; known[o.UID] == nil {
			known[o.UID] = &paths{}
		}
	}
	s.paths = known
	slices.SortFunc(list, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			b.Started.Compare(a.Started))
	})
	return list
}

// readGroups reads all cgroups, as many at once as there are CPUs: reading takes CPU time in the kernel, no disk I/O.
func (s *Sampler) readGroups(out *Sample, level Level, faults *faults) {
	detail := counters.Plain
	if level == Detailed {
		detail = counters.Throttling
	}
	work := make(chan *Pod)
	var reading sync.WaitGroup
	for _, r := range s.readers {
		reading.Go(func() {
			for p := range work {
				s.readPod(r, p, s.paths[p.UID], out, detail, faults)
			}
		})
	}
	for i := range out.Pods {
		work <- &out.Pods[i]
	}
	close(work)
	reading.Wait()

	r := s.readers[0]
	out.Node = readGroup(r, "/", detail, faults)
	for name, path := range s.SystemGroups {
		out.System = append(out.System, System{Name: name, Group: readGroup(r, path, detail, faults)})
	}
	out.System = append(out.System,
		System{Name: statsapi.SystemContainerPods, Group: readGroup(r, s.Groups.PodsGroup(), detail, faults)})
	for i := range out.System {
		if sys := &out.System[i]; sys.Name == statsapi.SystemContainerKubelet {
			sys.Started = s.Started
		} else {
			sys.Started = r.Made(sys.Path)
		}
	}
	slices.SortFunc(out.System, func(a, b System) int { return strings.Compare(a.Name, b.Name) })
}

func readGroup(r *counters.Reader, path string, detail counters.Detail, faults *faults) Group {
	f, err := r.Read(path, detail)
	faults.add(err)
	return Group{Path: path, Figures: f}
}

func (s *Sampler) readPod(r *counters.Reader, p *Pod, known *paths, out *Sample, detail counters.Detail,
	faults *faults) {
	if known.pod == "" {
		group, err := s.Groups.PodGroup(s.walks, p.UID)
		if err != nil {
			faults.add(err)
			return
		}
		known.pod = group
	}
	p.Group = readGroup(r, known.pod, detail, faults)
	if !known.has(p) {
		found, err := r.ContainerGroups(known.pod)
		faults.add(err)
		known.containers = found
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if path := known.containers[c.ID]; path != "" {
			c.Group = readGroup(r, path, detail, faults)
		}
	}
	if out.Level < Full {
		return
	}
	sandbox := known.containers[p.SandboxID]
	if out.Level == Detailed && sandbox != "" {
		p.Sandbox = readGroup(r, sandbox, detail, faults)
	}
	var files time.Time
	if out.Level == Detailed {
		files = out.At.Add(allFilesFor)
	}
	p.readProcesses(r, sandbox, files, faults)
}

// nameSandboxes sets the image of each pod's sandbox.
func (s *Sampler) nameSandboxes(ctx context.Context, pods []Pod, faults *faults) {
	var ids []string
	var of []*Pod
	for i := range pods {
		if p := &pods[i]; p.SandboxID != "" {
			ids, of = append(ids, p.SandboxID), append(of, p)
		}
	}
	for i, answer := range s.sandboxes.Get(ctx, ids, walkPatience, walkRevise) {
		faults.add(answer.Err)
		of[i].SandboxImage = answer.Value
	}
}

// has reports whether the paths of all the pod's containers have been found.
func (k *paths) has(p *Pod) bool {
	return k.containers != nil && (p.SandboxID == "" || k.containers[p.SandboxID] != "") &&
		!slices.ContainsFunc(p.Containers, func(c Container) bool { return k.containers[c.ID] == "" })
}

// faults collects the errors of concurrent measurements.
type faults struct {
	mu   sync.Mutex
	errs []error
}

// add records an error. It ignores errors about objects that don't exist any more, and cancellation.
func (f *faults) add(err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, context.Canceled) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// mostFaults is the maximum number of errors in one log message.
const mostFaults = 5

// logFaults logs the errors if they differ from those of the last sample of this level.
func (s *Sampler) logFaults(f *faults, level Level) {
	texts := make([]string, len(f.errs))
	for i, err := range f.errs {
		texts[i] = err.Error()
	}
	slices.Sort(texts) // they come from many goroutines
	texts = slices.Compact(texts)
	more := max(0, len(texts)-mostFaults)
	text := strings.Join(texts[:len(texts)-more], "; ")
	if text != "" && text != s.failures[level] {
		s.Log.Info("Some statistics can't be read and are left out", "err", text, "failures", len(texts))
	}
	s.failures[level] = text
}
