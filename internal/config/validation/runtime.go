package validation

import (
	"path"
	"strings"
	"time"

	"k8s.io/kubelet/config/v1beta1"
)

// MaxContainerRestartPeriod is the maximum delay between restarts of a failing container
// (KubeletConfiguration.crashLoopBackOff).
const MaxContainerRestartPeriod = 300 * time.Second

// Swap behaviours (KubeletConfiguration.memorySwap.swapBehavior); empty means NoSwap.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// idsPerRange is the unit of the number of IDs of a pod with a user namespace: the number must be a multiple of it.
const idsPerRange = 65536

const (
	minCPUQuotaPeriod = time.Millisecond
	maxCPUQuotaPeriod = time.Second
	minRestartPeriod  = time.Second
)

// Gates of container settings.
const (
	crashLoopBackOffMax = "KubeletCrashLoopBackOffMax"
	memoryQoS           = "MemoryQoS"
)

// runtime checks the settings of the connection to the container runtime.
func (k *check) runtime() {
	k.endpoint("containerRuntimeEndpoint", k.ContainerRuntimeEndpoint)
	k.endpoint("imageServiceEndpoint", k.ImageServiceEndpoint)
	if k.ImageServiceEndpoint != "" && k.ContainerRuntimeEndpoint == "" {
		k.forbidden(at("imageServiceEndpoint"),
			"the embedded runtime serves its own images: set containerRuntimeEndpoint too, or neither")
	}
	k.positive(at("runtimeRequestTimeout"), k.RuntimeRequestTimeout.Duration)
	oneOf(k, at("hairpinMode"), k.HairpinMode, v1beta1.PromiscuousBridge, v1beta1.HairpinVeth, v1beta1.HairpinNone)
	if _, err := PodCIDRs(k.KubeletConfiguration); err != nil {
		k.add(err)
	}
}

// endpoint checks the address of a unix socket. A path without unix:// is valid, as with the kubelet, which deprecates
// that form.
func (k *check) endpoint(name, value string) {
	socket := strings.TrimPrefix(value, "unix://")
	if value != "" && (!path.IsAbs(socket) || strings.ContainsRune(socket, 0)) {
		k.invalid(at(name), value, `must be a unix socket such as "unix:///run/containerd/containerd.sock"`)
	}
}

// pods checks the settings of pods and their containers.
func (k *check) pods() {
	atLeast(k, "maxPods", k.MaxPods, 0, "must be 0 or more")
	atLeast(k, "podsPerCore", k.PodsPerCore, 0, "must be 0 (no limit by cores) or more")
	if p := k.CPUCFSQuotaPeriod.Duration; p < minCPUQuotaPeriod || p > maxCPUQuotaPeriod {
		k.invalid(at("cpuCFSQuotaPeriod"), p.String(), "must be from 1ms to 1s")
	}
	if b := k.MemorySwap.SwapBehavior; b != "" {
		oneOf(k, at("memorySwap", "swapBehavior"), b, NoSwap, LimitedSwap)
	}
	if f := *k.MemoryThrottlingFactor; !(f > 0 && f <= 1) { // this form rejects NaN, too
		k.invalid(at("memoryThrottlingFactor"), f, "must be more than 0 and at most 1")
	}
	policy := at("memoryReservationPolicy")
	oneOf(k, policy, k.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy,
		v1beta1.TieredReservationMemoryReservationPolicy)
	if k.MemoryReservationPolicy == v1beta1.TieredReservationMemoryReservationPolicy {
		k.needsGate(policy, memoryQoS)
	}
	k.userNamespaces()
	k.restarts()
}

func (k *check) userNamespaces() {
	if k.UserNamespaces == nil {
		return
	}
	if n := *k.UserNamespaces.IDsPerPod; n <= 0 || n%idsPerRange != 0 || n >= 1<<32 {
		k.invalid(at("userNamespaces", "idsPerPod"), n, "must be a multiple of 65536, and less than 4294967296")
	}
}

// restarts checks the maximum restart delay. While the gate is off, only the default is valid, because the default is
// then in effect.
func (k *check) restarts() {
	path := at("crashLoopBackOff", "maxContainerRestartPeriod")
	p := k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	if p < minRestartPeriod || p > MaxContainerRestartPeriod {
		k.invalid(path, p.String(), "must be from 1s to 300s")
	}
	if p != MaxContainerRestartPeriod {
		k.needsGate(path, crashLoopBackOffMax)
	}
}

// sysctls checks the sysctls that pods may set: only sysctls with a namespace can differ between pods.
func (k *check) sysctls() {
	for i, pattern := range k.AllowedUnsafeSysctls {
		path := at("allowedUnsafeSysctls").Index(i)
		name, prefix := strings.CutSuffix(strings.ReplaceAll(pattern, "/", "."), "*")
		switch {
		case !isSysctl(name):
			k.invalid(path, pattern,
				`must be a sysctl such as "net.core.somaxconn", or the beginning of one before "*"`)
		case !isNamespaced(name, prefix):
			k.invalid(path, pattern,
				"can't be given to pods, as it has no namespace: only kernel.shm*, kernel.msg*, kernel.sem, "+
					"fs.mqueue.* and net.* can")
		}
	}
}
