// Package stats samples what pods, their containers and the node use: CPU, memory, disk, network, processes. Nothing is
// measured while nobody asks; who asks gets a sample that is no older than they allow, and shares it with others.
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

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Config is what a Sampler is built from. Every field is needed but SystemGroups.
type Config struct {
	Node string
	// Started is when the agent was started.
	Started  time.Time
	Groups   *cgroup.Manager
	Observed interface{ All() []*pod.Observed }
	Volumes  interface{ Instances() []volume.Instance }
	// FileSystems asks file systems how full they are.
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
	// VolumesEvery is how old what volumes hold may be, as far as they have to be walked through; below 0 they aren't
	// (volumeStatsAggPeriod).
	VolumesEvery time.Duration
	// RootDir is on the file system that is the node's; Logs is the directory of all pods' logs.
	RootDir, Logs string
	// Memory and Swap are what the machine has, in bytes.
	Memory, Swap int64
	// SystemGroups are the names of control groups that aren't pods', by what statsapi calls them.
	SystemGroups map[string]string
	Log          logr.Logger
}

// Level is how much a sample holds; a higher one holds more.
type Level int

const (
	// CPUAndMemory is that of the node, pods and containers.
	CPUAndMemory Level = iota
	// Full is also disk, network and processes.
	Full
	// Detailed is also the limits there are, how often they were hit, and what sandboxes use.
	Detailed
)

// Group is what a control group has used.
type Group struct {
	// Path is the group's name.
	Path string
	cgroup.Figures
	// Rate is how much of one CPU it uses, in billionths; nil if that can't be known.
	Rate *uint64
}

// Sample is what was used at a time. It is immutable. What couldn't be read is nil, or isn't there.
type Sample struct {
	At    time.Time
	Level Level
	// Booted is when the machine was started; zero if that can't be read.
	Booted time.Time
	Node   Group
	// System are groups that aren't pods', sorted by name.
	System []System
	// Rest is what the machine uses beside the other System groups, where there is one called misc.
	Rest Group
	// Pods are those that have a container that runs, by namespace and name; of one name, as while one ends, the newest
	// is first.
	Pods []Pod

	Network    *statsapi.NetworkStats
	Interfaces []Interface
	// Disks are the machine's, with Detailed.
	Disks                        []Disk
	NodeFS, ImageFS, ContainerFS *statsapi.FsStats
	Processes                    *statsapi.RlimitStats
	// Device and ImageDevice are what NodeFS and ContainerFS are on.
	Device, ImageDevice string
	// ImageAt is when the file system that ContainerFS is on was asked for its size and inodes.
	ImageAt time.Time
}

// System is a control group that isn't pods'.
type System struct {
	// Name is statsapi's.
	Name    string
	Started time.Time
	Group
}

// Pod is what one pod uses.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Started         time.Time
	Group
	// Containers are those that run, by name, the newest of one name first.
	Containers []Container
	// SandboxID and Sandbox are the sandbox's, which has a group of its own.
	SandboxID, SandboxImage string
	Sandbox                 Group
	// Network is nil on the host's network.
	Network    *statsapi.NetworkStats
	Interfaces []Interface
	Volumes    []statsapi.VolumeStats
	// Processes is how many there are, InSandbox what the sandbox has of them.
	Processes *uint64
	InSandbox Running
	// Ephemeral is what it has on the node's disk, of what counts against its ephemeral storage.
	Ephemeral *statsapi.FsStats

	observed *pod.Observed
}

// Container is what one instance of a container uses.
type Container struct {
	Name, ID, Image string
	Started         time.Time
	Group
	Rootfs, Logs *statsapi.FsStats
	Running
}

// Running is what runs in a container or a sandbox.
type Running struct {
	// Processes is how many there are.
	Processes int
	// Files are what they have open, with Detailed.
	Files *Files
}

// Sampler makes samples. Its methods may be called by many goroutines.
type Sampler struct {
	Config
	walks  context.Context // ends with Run
	end    context.CancelFunc
	layers *usage.Answers[map[string]usage.Usage]
	dirs   *usage.Answers[usage.Usage]
	logs   *usage.Answers[usage.Usage]
	images *usage.Answers[*runtimeapi.ImageFsInfoResponse]
	// sandboxes are the images of sandboxes, by ID, devices what directories are on.
	sandboxes, devices *usage.Answers[string]
	turn               chan struct{}

	// What follows belongs to whose turn it is.
	last     *Sample
	paths    map[types.UID]*paths
	rates    rates
	rest     rest
	readers  []*cgroup.Reader
	failures [Detailed + 1]string // by level
}

// paths are the groups of a pod.
type paths struct {
	pod        string
	containers map[string]string // by ID, the sandbox's included
}

const (
	// walkedFor is for how long it counts what a walk through a layer or logs has found: as often as the kubelet's
	// runtimes and it do.
	walkedFor = time.Minute
	// walkPatience is for how long a sample waits for walks that have never ended before, walkRevise for others.
	walkPatience, walkRevise = time.Second, 30 * time.Millisecond
	// imagesFor is for how long it counts what the runtime says of its file systems.
	imagesFor = 10 * time.Second
	// sandboxesFor is for how long it isn't asked again what a sandbox was made of, which doesn't change.
	sandboxesFor = time.Hour
	// endPatience is for how long the end waits for file systems that don't answer.
	endPatience = 2 * time.Second
)

// New returns a sampler that measures nothing before it is asked.
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
	s.devices = usage.NewAnswers(walkedFor, device)
	s.logs = usage.NewAnswers(walkedFor, func(dir string) (usage.Usage, error) {
		u, err := c.Meter.Measure(s.walks, dir)
		var own unix.Stat_t
		if err == nil && unix.Lstat(dir, &own) == nil && u.Inodes > 0 { // the directory is no log
			u = u.Add(usage.Usage{Bytes: -own.Blocks * 512, Inodes: -1})
		}
		return u, err
	})
	return s
}

// Run does nothing until ctx ends, and ends then what is still being measured.
func (s *Sampler) Run(ctx context.Context) error {
	<-ctx.Done()
	s.end()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if err := errors.Join(s.layers.Close(end), s.dirs.Close(end), s.logs.Close(end), s.images.Close(end),
		s.sandboxes.Close(end), s.devices.Close(end)); err != nil {
		s.Log.Info("A file system doesn't answer", "err", err)
	}
	return nil
}

// Sample returns one that is at most maxAge old and holds that much. It waits for one that is being made.
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

// pods are those that have a container that runs, as with a kubelet.
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

// readGroups reads all control groups, as many at once as there are CPUs: reading takes the kernel's time, not a
// disk's.
func (s *Sampler) readGroups(out *Sample, level Level, faults *faults) {
	detail := cgroup.Plain
	if level == Detailed {
		detail = cgroup.Throttling
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

func readGroup(r *cgroup.Reader, path string, detail cgroup.Detail, faults *faults) Group {
	f, err := r.Read(path, detail)
	faults.add(err)
	return Group{Path: path, Figures: f}
}

func (s *Sampler) readPod(r *cgroup.Reader, p *Pod, known *paths, out *Sample, detail cgroup.Detail, faults *faults) {
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

// nameSandboxes finds out what sandboxes were made of.
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

// has reports whether the group of each of the pod's containers is known.
func (k *paths) has(p *Pod) bool {
	if k.containers == nil {
		return false
	}
	for i := range p.Containers {
		if k.containers[p.Containers[i].ID] == "" {
			return false
		}
	}
	return p.SandboxID == "" || k.containers[p.SandboxID] != ""
}

// faults collects what couldn't be measured, of many goroutines.
type faults struct {
	mu   sync.Mutex
	errs []error
}

// add notes an error. What is gone meanwhile is none.
func (f *faults) add(err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, context.Canceled) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// mostFaults is how many are logged at once.
const mostFaults = 5

// logFaults logs them when they are others than the last ones of a sample that held as much.
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
