package kubeletconfig

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Field says what this build does with a field of the configuration, and with
// every field below it that has no entry of its own.
type Field struct {
	// Path is the field by its names in the file: "logging.verbosity".
	Path string
	// Why is empty for a field this build acts on. Otherwise it says, in words
	// for the person who set it, why setting it has no effect.
	Why string
}

// Fields is the table of all fields of v1beta1.KubeletConfiguration.
func Fields() []Field {
	var out []Field
	for _, path := range honoured() {
		out = append(out, Field{Path: path})
	}
	for _, g := range ignored() {
		for _, path := range strings.Fields(g.paths) {
			out = append(out, Field{Path: path, Why: g.why})
		}
	}
	return out
}

func honoured() []string {
	return strings.Fields(`
		apiVersion kind
		staticPodPath staticPodURL staticPodURLHeader
		syncFrequency fileCheckFrequency httpCheckFrequency
		podLogsDir
		address readOnlyPort healthzPort healthzBindAddress
		cgroupRoot cgroupDriver
		containerRuntimeEndpoint imageServiceEndpoint runtimeRequestTimeout
		podCIDR
		clusterDNS clusterDomain resolvConf
		crashLoopBackOff featureGates
		registryPullQPS registryBurst serializeImagePulls maxParallelImagePulls
		imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist
		imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent
		containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval
		cpuCFSQuota cpuCFSQuotaPeriod singleProcessOOMKill memorySwap seccompDefault userNamespaces
		podPidsLimit memoryThrottlingFactor memoryReservationPolicy allowedUnsafeSysctls
		logging.format logging.verbosity`)
}

// ignored groups the fields without effect by the reason.
func ignored() []struct{ why, paths string } {
	return []struct{ why, paths string }{
		{"this build has no authenticated HTTPS server", `
			enableServer port tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences tlsMinVersion
			rotateCertificates serverTLSBootstrap authentication authorization
			enableDebuggingHandlers enableContentionProfiling enableProfilingHandler enableDebugFlagsHandler
			enableSystemLogHandler enableSystemLogQuery streamingConnectionIdleTimeout`},
		{"this build talks to no API server", `
			nodeStatusUpdateFrequency nodeStatusReportFrequency nodeStatusMaxImages nodeLeaseDurationSeconds
			registerNode registerWithTaints providerID contentType kubeAPIQPS kubeAPIBurst
			eventRecordQPS eventBurst configMapAndSecretChangeDetectionStrategy`},
		{"this build doesn't evict pods", `
			evictionHard evictionSoft evictionSoftGracePeriod evictionPressureTransitionPeriod
			evictionMaxPodGracePeriod evictionMinimumReclaim mergeDefaultEvictionSettings
			kernelMemcgNotification localStorageCapacityIsolation`},
		{"this build has no cgroup tree of its own for pods, QoS classes and system parts", `
			kubeletCgroups systemCgroups cgroupsPerQOS enforceNodeAllocatable
			systemReserved kubeReserved systemReservedCgroup kubeReservedCgroup reservedSystemCPUs reservedMemory
			qosReserved`},
		{"this build doesn't assign CPUs, memory or devices to containers", `
			cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy
			topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions`},
		{"this build admits every valid pod", `
			maxPods podsPerCore`},
		{"this build doesn't hold up the node's shutdown", `
			shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority`},
		{"this build has no volume statistics and no volume plugins from outside", `
			volumeStatsAggPeriod volumePluginDir enableControllerAttachDetach`},
		{"this build neither checks nor changes this setting of the host", `
			oomScoreAdj maxOpenFiles failSwapOn failCgroupV1 protectKernelDefaults
			makeIPTablesUtilChains hairpinMode`},
		{"it has no effect in the kubelet either (deprecated)", `
			iptablesMasqueradeBit iptablesDropBit`},
		{"this build has one mode of running and no hidden metrics or traces", `
			runOnce showHiddenMetricsForVersion tracing`},
		{"this build writes its log unbuffered, all to one place and with one verbosity", `
			logging.flushFrequency logging.vmodule logging.options`},
	}
}

// found is something to tell about a line.
type found struct {
	line int
	text string
}

// NotActedOn lists the fields the file sets (to something other than zero) on
// which this build doesn't act, in the file's order, each with its line and the
// reason.
func (d *Document) NotActedOn() []string {
	all := d.switchedOff()
	for _, f := range Fields() {
		if f.Why == "" || !d.Given(f.Path) || d.isZero(f.Path) {
			continue
		}
		line := d.LineOf(f.Path)
		all = append(all, found{line, fmt.Sprintf("%s (line %d): %s", f.Path, line, f.Why)})
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.line, b.line) })
	out := make([]string, 0, len(all))
	for _, f := range all {
		out = append(out, f.text)
	}
	return out
}

// isZero tells a field that is given but says nothing ("0s", "", {}) from one
// that is meant: such fields are what tools write that print every field.
func (d *Document) isZero(path string) bool {
	v := reflect.ValueOf(&d.Config).Elem()
	for name := range strings.SplitSeq(path, ".") {
		fields := map[string]reflect.Value{}
		collect(fields, v)
		v = fields[name]
	}
	return isZero(v)
}

func isZero(v reflect.Value) bool {
	if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			// Fields outside of JSON only remember how a value was written.
			if v.Type().Field(i).Tag.Get("json") != "-" && !isZero(v.Field(i)) {
				return false
			}
		}
		return true
	default:
		return v.IsZero()
	}
}
