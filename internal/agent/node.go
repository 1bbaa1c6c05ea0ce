package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// node holds the host's resources and the settings for pods.
type node struct {
	cfg      *config.Config
	log      logr.Logger
	capacity capacity.Node
	// facts are the facts about the node. machine writes the facts that come from the machine and the configuration.
	facts   *nodefacts.Board
	machine *nodefacts.Writer
	// mu guards own and added. own are the machine's capacity and the part of it that the configuration's
	// reservations leave; added are the amounts of device plugins.
	mu         sync.Mutex
	own, added devices.Amounts
	cgroups    *cgroup.Manager
	users      *userns.Manager
	// forAdmission are the node facts for pod admission that don't change.
	forAdmission admission.Node
	// fixed are the settings that don't change after control groups have been configured.
	fixed *translate.Settings
}

// allocatable returns the amounts that the node can allocate to pods now. The caller must not change the list.
func (n *node) allocatable() v1.ResourceList { return n.facts.Now().Allocatable }

func (n *node) hostIPs() []string { return n.facts.Now().HostIPs }

func (n *node) labels() map[string]string { return n.facts.Now().Labels }

// setAllocatable computes capacity and allocatable from the configuration, and publishes them.
func (n *node) setAllocatable(k *v1beta1.KubeletConfiguration) error {
	list, err := allocatable(n.capacity, k)
	if err == nil {
		capacity := n.capacity.Capacity()
		capacity[v1.ResourcePods] = n.capacity.Pods(k)
		n.setAmounts(func() { n.own = devices.Amounts{Capacity: capacity, Allocatable: list} })
	}
	return err
}

// setLimits updates the limits of control groups after a change of the configuration's reservations.
func (n *node) setLimits(cfg *config.Config) error {
	c, err := cgroup.ConfigOf(cfg, n.capacity)
	if err != nil {
		return err
	}
	return n.cgroups.Limit(context.Background(), c) // doesn't block; systemd calls have a timeout
}

// setDevices publishes the amounts of devices that device plugins report.
func (n *node) setDevices(a devices.Amounts) { n.setAmounts(func() { n.added = a }) }

func (n *node) setAmounts(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	both := func(own, added v1.ResourceList) v1.ResourceList {
		all := maps.Clone(own)
		maps.Copy(all, added)
		return all
	}
	capacity, allocatable := both(n.own.Capacity, n.added.Capacity), both(n.own.Allocatable, n.added.Allocatable)
	n.machine.Set(func(f *nodefacts.Facts) {
		f.Capacity, f.Allocatable, f.AwaitedPlugins = capacity, allocatable, n.added.Awaited
	})
}

// setImages publishes the runtime's images as a fact of the node.
func (n *node) setImages(list []*runtimeapi.Image) {
	images := make([]v1.ContainerImage, len(list))
	for i, img := range list {
		images[i] = v1.ContainerImage{Names: slices.Concat(img.RepoDigests, img.RepoTags), SizeBytes: int64(img.Size)}
	}
	n.machine.Set(func(f *nodefacts.Facts) { f.Images = images })
}

// allocatable returns the machine's amounts less the reservations of a configuration.
func allocatable(c capacity.Node, k *v1beta1.KubeletConfiguration) (v1.ResourceList, error) {
	list, err := c.Allocatable(k)
	if err != nil {
		return nil, err
	}
	list[v1.ResourcePods] = c.Pods(k)
	if !ptr.Deref(k.LocalStorageCapacityIsolation, true) {
		delete(list, v1.ResourceEphemeralStorage) // without isolation, pods' use of storage isn't measured
	}
	return list, nil
}

// admission returns the current node facts that pod admission depends on. can are the runtime's features, nil until
// the runtime has answered.
func (n *node) admission(can *translate.Features) *admission.Node {
	now, facts := n.facts.Now(), n.forAdmission
	facts.Labels, facts.Taints, facts.DeclaredFeatures = now.Labels, now.Taints, now.DeclaredFeatures
	facts.Pressure = now.Pressure
	// In a cluster a cloud provider may set the addresses later; a standalone node has only its own.
	facts.AwaitsAddress = !n.cfg.Standalone && len(now.HostIPs) == 0
	if can != nil {
		facts.SupplementalGroupsPolicy = &can.SupplementalGroupsPolicy
	}
	return &facts
}

// declaredFeatures returns the features that this node declares (KEP-5328): those that are always enabled in this
// build, whatever their feature gates are.
func declaredFeatures() []string {
	on := featuretypes.FeatureGateMap{}
	for _, g := range gates.All() {
		on[g.Name] = g.Effect == gates.AlwaysOn
	}
	return features.DefaultFramework.DiscoverNodeFeatures(&features.NodeConfiguration{FeatureGates: on})
}

// shared returns the resources of a running container without CPUs of its own.
func (n *node) shared(p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return translate.ResizedResources(n.settings(), p, c, c.Resources, translate.Assignment{})
}

// settings returns the current settings for new containers.
func (n *node) settings() *translate.Settings {
	s, forPods := *n.fixed, n.allocatable()
	s.MemoryQoS.Allocatable = forPods.Memory().Value()
	return &s
}

// newNode reads the host's resources. pods is the parent of the pods' directories, stateDir the runtime's state
// directory (engine.Traits).
func newNode(cfg *config.Config, pods, stateDir string, log logr.Logger) (*node, error) {
	k := &cfg.Kubelet
	machine, err := capacity.Read("/", cfg.RootDir)
	if err != nil {
		return nil, err
	}
	first := nodefacts.Facts{Labels: cfg.NodeLabels, DeclaredFeatures: declaredFeatures()}
	for _, ip := range cfg.NodeIPs {
		first.HostIPs = append(first.HostIPs, ip.String())
	}
	n := &node{cfg: cfg, log: log, capacity: machine, users: newUsers(cfg, pods, stateDir),
		facts: nodefacts.NewBoard(first)}
	if n.machine, err = n.facts.Writer("the machine",
		nodefacts.Capacity|nodefacts.Allocatable|nodefacts.AwaitedPlugins|nodefacts.DeclaredFeatures|nodefacts.Images); err != nil {
		return nil, err
	}
	if err := n.setAllocatable(k); err != nil {
		return nil, err
	}
	groups, err := cgroup.ConfigOf(cfg, machine)
	if err != nil {
		return nil, err
	}
	n.cgroups = cgroup.New(groups, log.WithName("cgroups"))
	armor := kernel.AppArmor{}
	n.forAdmission = admission.Node{
		Name: cfg.NodeName, OS: goruntime.GOOS, UnsafeSysctls: k.AllowedUnsafeSysctls, Kernel: kernelVersion(),
		AppArmor: armor.Enabled(), Version: buildinfo.Kubernetes, InCluster: !cfg.Standalone,
	}
	n.fixed = &translate.Settings{
		PodLogsDir: k.PodLogsDir, Boot: bootID(), ClusterDomain: k.ClusterDomain,
		SeccompRoot: filepath.Join(cfg.RootDir, "seccomp"), SeccompDefault: ptr.Deref(k.SeccompDefault, false),
		AppArmorLoaded: armor.Loaded, MaskedPaths: thermalThrottle(),
		NoCPUQuota: !ptr.Deref(k.CPUCFSQuota, true), CPUQuotaPeriod: k.CPUCFSQuotaPeriod.Duration,
		MemoryCapacity: machine.Memory, Swap: cgroup.SwapForPods(k, machine),
		MemoryQoS: translate.MemoryQoS{
			Enabled: cfg.Gates.Enabled(gates.MemoryQoS), ThrottlingFactor: ptr.Deref(k.MemoryThrottlingFactor, 0),
			Reserve: cgroup.ReservesMemory(cfg),
		},
	}
	return n, nil
}

// kernelVersion returns the kernel release of uname(2); empty on error.
func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// bootID returns the ID of the machine's current boot; empty on error.
func bootID() string {
	id, _ := kernel.BootID("/")
	return id
}

// thermalThrottle lists the thermal_throttle directories, which disclose the activity of other programs on the host.
// Container runtimes mask them by default, but not if the agent sends its own list of masked paths.
func thermalThrottle() []string {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle") // fails for bad patterns only
	return paths
}

// newUsers returns the allocator of ranges of host user IDs for user namespaces.
func newUsers(cfg *config.Config, pods, stateDir string) *userns.Manager {
	k := &cfg.Kubelet
	perPod := uint32(userns.Block)
	if u := k.UserNamespaces; u != nil {
		perPod = uint32(ptr.Deref(u.IDsPerPod, userns.Block))
	}
	return userns.New(userns.Config{PodsDir: pods, PerPod: perPod,
		Find: func(ctx context.Context) (userns.Range, error) {
			ids, err := userns.Finder{MaxPods: k.MaxPods, PerPod: perPod}.Find(ctx)
			if err == nil && stateDir != "" {
				if reach := userns.Reach(stateDir); reach != nil {
					err = fmt.Errorf("containers with users of their own can't be run below %s: %w", cfg.RootDir, reach)
				}
			}
			return ids, err
		}})
}

// useDriver sets the cgroup driver to the one that the runtime reports. The configuration's driver is ignored
// (KEP-4033).
func (n *node) useDriver(driver tree.Driver) {
	if configured := n.cfg.Kubelet.CgroupDriver; configured != string(driver) {
		n.log.Info("The runtime has another cgroup driver than the configuration: its own counts",
			"cgroupDriver", configured, "runtime", driver)
	}
	n.cgroups.UseDriver(driver)
}

// configureCgroups detects the features of the host's control groups, and logs the settings that they don't support.
// The driver must have been set before.
func (n *node) configureCgroups(ctx context.Context) error {
	if err := n.cgroups.Check(); err != nil {
		return err
	}
	if err := n.cgroups.EnforceReserved(ctx); err != nil {
		return err
	}
	support, err := n.cgroups.Support()
	if err != nil {
		return err
	}
	k, s := &n.cfg.Kubelet, n.fixed
	s.CgroupV2, s.BoundSwap, s.HugePageSizes = support.V2, support.Swap, support.HugePages
	// On cgroup v2 the OOM killer kills all processes of a container, unless configured otherwise.
	s.GroupOOMKill = support.V2 && !ptr.Deref(k.SingleProcessOOMKill, false)
	if k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill && !support.V2 {
		return errors.New("invalid configuration: singleProcessOOMKill: false needs cgroup v2, and this host has v1: " +
			"leave it out")
	}
	for _, warning := range n.cgroups.Warnings(support, n.capacity, s.MemoryQoS.Enabled) {
		n.log.Info("Not all of the configuration can be had on this host", "message", warning)
	}
	return nil
}
