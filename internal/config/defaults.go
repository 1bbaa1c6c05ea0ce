package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config/validation"
)

// SetDefaults sets the defaults of unset fields, as documented in the comments of k8s.io/kubelet/config/v1beta1. If a
// field's type can't distinguish zero from unset, zero counts as unset, as documented. Some defaults depend on other
// fields. No default depends on a feature gate: while a field's gate is off, its default has no effect. Defaults are
// set before flags are applied; package validation checks the result.
//
// One default differs from the kubelet's: containerRuntimeEndpoint stays empty, which selects the embedded runtime.
func SetDefaults(c *v1beta1.KubeletConfiguration) {
	defaultSources(c)
	defaultServing(c)
	defaultAuth(c)
	defaultRegistries(c)
	defaultNodeStatus(c)
	defaultCgroups(c)
	defaultManagers(c)
	defaultRuntime(c)
	defaultEviction(c)
	defaultLogs(c)
	defaultHost(c)
}

// set sets a field to the default value if the field has its type's zero value.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPtr sets a field to the default value if the field is nil.
func setPtr[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

func setDuration(field *metav1.Duration, value time.Duration) { set(&field.Duration, value) }

func defaultSources(c *v1beta1.KubeletConfiguration) {
	setDuration(&c.SyncFrequency, time.Minute)
	setDuration(&c.FileCheckFrequency, 20*time.Second)
	setDuration(&c.HTTPCheckFrequency, 20*time.Second)
}

func defaultServing(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.EnableServer, true)
	set(&c.Address, "0.0.0.0")
	set(&c.Port, 10250)
	setPtr(&c.HealthzPort, 10248)
	set(&c.HealthzBindAddress, "127.0.0.1")
	setPtr(&c.EnableDebuggingHandlers, true)
	setPtr(&c.EnableProfilingHandler, true)
	setPtr(&c.EnableDebugFlagsHandler, true)
	setPtr(&c.EnableSystemLogHandler, true)
	setPtr(&c.EnableSystemLogQuery, false)
	setDuration(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
}

func defaultAuth(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.Authentication.Anonymous.Enabled, false)
	setPtr(&c.Authentication.Webhook.Enabled, true)
	setDuration(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	set(&c.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	setDuration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	setDuration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
}

func defaultRegistries(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.RegistryPullQPS, 5)
	set(&c.RegistryBurst, 10)
	// A limit of parallel pulls above 1 implies that pulls aren't serial.
	setPtr(&c.SerializeImagePulls, c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls == 1)
	set(&c.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	setDuration(&c.ImageMinimumGCAge, 2*time.Minute)
	setPtr(&c.ImageGCHighThresholdPercent, 85)
	setPtr(&c.ImageGCLowThresholdPercent, 80)
}

func defaultNodeStatus(c *v1beta1.KubeletConfiguration) {
	if c.NodeStatusUpdateFrequency.Duration != 0 {
		// As documented, an explicit nodeStatusUpdateFrequency is also the default of nodeStatusReportFrequency.
		setDuration(&c.NodeStatusReportFrequency, c.NodeStatusUpdateFrequency.Duration)
	}
	setDuration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	setDuration(&c.NodeStatusReportFrequency, 5*time.Minute)
	set(&c.NodeLeaseDurationSeconds, 40)
	setPtr(&c.NodeStatusMaxImages, 50)
	setPtr(&c.RegisterNode, true)
	set(&c.ContentType, "application/vnd.kubernetes.protobuf")
	setPtr(&c.KubeAPIQPS, 50)
	set(&c.KubeAPIBurst, 100)
	setPtr(&c.EventRecordQPS, 50)
	set(&c.EventBurst, 100)
	set(&c.ConfigMapAndSecretChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy)
}

func defaultCgroups(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.CgroupsPerQOS, true)
	set(&c.CgroupDriver, validation.CgroupDriverCgroupfs)
	setPtr(&c.FailCgroupV1, true)
	setPtr(&c.CPUCFSQuota, true)
	setPtr(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	setPtr(&c.PodPidsLimit, -1)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
}

func defaultManagers(c *v1beta1.KubeletConfiguration) {
	set(&c.CPUManagerPolicy, "none")
	setDuration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	set(&c.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy)
	set(&c.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy)
	set(&c.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope)
	setPtr(&c.MemoryThrottlingFactor, 0.9)
	set(&c.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
}

func defaultRuntime(c *v1beta1.KubeletConfiguration) {
	setDuration(&c.RuntimeRequestTimeout, 2*time.Minute)
	set(&c.HairpinMode, v1beta1.PromiscuousBridge)
	set(&c.MaxPods, 110)
	setPtr(&c.ResolverConfig, "/etc/resolv.conf")
	setPtr(&c.CrashLoopBackOff.MaxContainerRestartPeriod,
		metav1.Duration{Duration: validation.MaxContainerRestartPeriod})
	setPtr(&c.SeccompDefault, false)
	if c.UserNamespaces != nil {
		setPtr(&c.UserNamespaces.IDsPerPod, 65536)
	}
}

func defaultEviction(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.MergeDefaultEvictionSettings, false)
	switch hard := defaultEvictionHard(); {
	case c.EvictionHard == nil:
		c.EvictionHard = hard
	case *c.MergeDefaultEvictionSettings:
		maps.Copy(hard, c.EvictionHard)
		c.EvictionHard = hard
	}
	setDuration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	setPtr(&c.LocalStorageCapacityIsolation, true)
	setDuration(&c.VolumeStatsAggPeriod, time.Minute)
}

// defaultEvictionHard returns the kubelet's defaults on Linux. The API type's comment omits imagefs.inodesFree, which
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ has.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// aloneEvictionHard returns the defaults that differ without a cluster. Without a cluster, no other node can run
// evicted pods, so thresholds are lower: a tenth of a large disk is still much free space.
func aloneEvictionHard() map[string]string {
	return map[string]string{
		"nodefs.available":   "2%",
		"nodefs.inodesFree":  "1%",
		"imagefs.available":  "2%",
		"imagefs.inodesFree": "1%",
	}
}

func defaultLogs(c *v1beta1.KubeletConfiguration) {
	set(&c.PodLogsDir, "/var/log/pods/")
	set(&c.ContainerLogMaxSize, "10Mi")
	setPtr(&c.ContainerLogMaxFiles, 5)
	setPtr(&c.ContainerLogMaxWorkers, 1)
	setPtr(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func defaultHost(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.OOMScoreAdj, -999)
	set(&c.MaxOpenFiles, 1_000_000)
	setPtr(&c.FailSwapOn, true)
	setPtr(&c.EnableControllerAttachDetach, true)
	setPtr(&c.MakeIPTablesUtilChains, true)
	setPtr(&c.IPTablesMasqueradeBit, 14)
	setPtr(&c.IPTablesDropBit, 15)
	set(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
}
