package kubeletconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// Swap behaviours (KubeletConfiguration.memorySwap.swapBehavior); none is NoSwap.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// idsPerRange is what the IDs of a pod with a user namespace are a multiple of.
const idsPerRange = 65536

// Bounds of what is checked below; the log monitor's keeps it from becoming a busy loop.
const (
	minLogMonitorInterval = time.Second
	minCPUQuotaPeriod     = time.Millisecond
	maxCPUQuotaPeriod     = time.Second
)

func validateImages(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	at := func(name string, value any, detail string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, detail))
	}
	if *c.RegistryPullQPS < 0 {
		at("registryPullQPS", *c.RegistryPullQPS, "must be 0 (no limit) or more")
	}
	if c.RegistryBurst < 0 {
		at("registryBurst", c.RegistryBurst, "must be 0 or more")
	}
	if n := c.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			at("maxParallelImagePulls", *n, "must be 1 or more; leave it out for no limit")
		case *n > 1 && *c.SerializeImagePulls:
			at("maxParallelImagePulls", *n, "can't be more than 1 while serializeImagePulls is true")
		}
	}
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	switch {
	case high < 0 || high > 100:
		at("imageGCHighThresholdPercent", high, "must be from 0 to 100; 100 turns the collection of unused images off")
	case low < 0 || low > 100:
		at("imageGCLowThresholdPercent", low, "must be from 0 to 100")
	case low >= high:
		at("imageGCLowThresholdPercent", low, fmt.Sprintf("must be less than imageGCHighThresholdPercent (%d)", high))
	}
	least, most := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	switch {
	case least < 0:
		at("imageMinimumGCAge", least.String(), "must be more than 0")
	case most < 0:
		at("imageMaximumGCAge", most.String(), "must be 0 (no limit) or more")
	case most > 0 && most <= least:
		at("imageMaximumGCAge", most.String(), fmt.Sprintf("must be more than imageMinimumGCAge (%s), or 0 for no limit", least))
	}
	return append(errs, validateImageUse(c)...)
}

// validateImageUse checks who may use images that are present.
func validateImageUse(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	policies := []v1beta1.ImagePullCredentialsVerificationPolicy{v1beta1.NeverVerify, v1beta1.NeverVerifyPreloadedImages, v1beta1.NeverVerifyAllowlistedImages, v1beta1.AlwaysVerify}
	policy := c.ImagePullCredentialsVerificationPolicy
	if !slices.Contains(policies, policy) {
		errs = append(errs, field.NotSupported(field.NewPath("imagePullCredentialsVerificationPolicy"), policy, policies))
	}
	list := field.NewPath("preloadedImagesVerificationAllowlist")
	if len(c.PreloadedImagesVerificationAllowlist) > 0 && policy != v1beta1.NeverVerifyAllowlistedImages {
		errs = append(errs, field.Forbidden(list, fmt.Sprintf("counts only with imagePullCredentialsVerificationPolicy %s", v1beta1.NeverVerifyAllowlistedImages)))
	}
	for i, image := range c.PreloadedImagesVerificationAllowlist {
		name := strings.TrimSuffix(image, "/*")
		switch last := name[strings.LastIndex(name, "/")+1:]; {
		case name == "" || strings.ContainsAny(name, "* \t"):
			errs = append(errs, field.Invalid(list.Index(i), image, `must be an image's name, or a path before "/*"`))
		case strings.Contains(name, "@") || strings.Contains(name, "/") && strings.Contains(last, ":"):
			errs = append(errs, field.Invalid(list.Index(i), image, "must have neither tag nor digest"))
		}
	}
	return errs
}

func validateContainerLogs(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	at := func(name string, value any, detail string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, detail))
	}
	if _, err := ContainerLogMaxBytes(c); err != nil {
		at("containerLogMaxSize", c.ContainerLogMaxSize, err.Error())
	}
	if n := *c.ContainerLogMaxFiles; n < 2 {
		at("containerLogMaxFiles", n, "must be 2 or more: the one that is written, and one rotated")
	}
	if n := *c.ContainerLogMaxWorkers; n < 1 {
		at("containerLogMaxWorkers", n, "must be 1 or more")
	}
	if d := c.ContainerLogMonitorInterval.Duration; d < minLogMonitorInterval {
		at("containerLogMonitorInterval", d.String(), "must be at least "+minLogMonitorInterval.String())
	}
	return errs
}

// maxQuantity keeps exponents that would take forever to compute from being parsed.
const maxQuantity = 32

// ContainerLogMaxBytes is containerLogMaxSize in bytes; -1 for no limit.
func ContainerLogMaxBytes(c *v1beta1.KubeletConfiguration) (int64, error) {
	const want = `must be a size such as "10Mi", or negative for no limit`
	if len(c.ContainerLogMaxSize) > maxQuantity || strings.ContainsAny(c.ContainerLogMaxSize, "eE") && !strings.HasSuffix(c.ContainerLogMaxSize, "Ei") {
		return 0, errors.New(want)
	}
	q, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil || q.IsZero() {
		return 0, errors.New(want)
	}
	return max(q.Value(), -1), nil
}

func validateContainerResources(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	if p := c.CPUCFSQuotaPeriod.Duration; p < minCPUQuotaPeriod || p > maxCPUQuotaPeriod {
		errs = append(errs, field.Invalid(field.NewPath("cpuCFSQuotaPeriod"), p.String(), "must be from 1ms to 1s"))
	}
	if b := c.MemorySwap.SwapBehavior; b != "" && b != NoSwap && b != LimitedSwap {
		errs = append(errs, field.NotSupported(field.NewPath("memorySwap", "swapBehavior"), b, []string{NoSwap, LimitedSwap}))
	}
	if n := *c.PodPidsLimit; n < -1 || n == 0 {
		errs = append(errs, field.Invalid(field.NewPath("podPidsLimit"), n, "must be more than 0, or -1 for no limit"))
	}
	if f := *c.MemoryThrottlingFactor; f <= 0 || f > 1 {
		errs = append(errs, field.Invalid(field.NewPath("memoryThrottlingFactor"), f, "must be more than 0 and at most 1"))
	}
	if p := c.MemoryReservationPolicy; p != v1beta1.NoneMemoryReservationPolicy && p != v1beta1.TieredReservationMemoryReservationPolicy {
		errs = append(errs, field.NotSupported(field.NewPath("memoryReservationPolicy"), p,
			[]v1beta1.MemoryReservationPolicy{v1beta1.NoneMemoryReservationPolicy, v1beta1.TieredReservationMemoryReservationPolicy}))
	}
	if u := c.UserNamespaces; u != nil {
		if n := *u.IDsPerPod; n <= 0 || n%idsPerRange != 0 || n >= 1<<32 {
			errs = append(errs, field.Invalid(field.NewPath("userNamespaces", "idsPerPod"), n, "must be a multiple of 65536, and less than 4294967296"))
		}
	}
	return append(errs, validateUnsafeSysctls(c)...)
}

// validateUnsafeSysctls checks what pods may be allowed to set: only what has a
// namespace of its own can be given to them.
func validateUnsafeSysctls(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	for i, pattern := range c.AllowedUnsafeSysctls {
		at := field.NewPath("allowedUnsafeSysctls").Index(i)
		name := strings.ReplaceAll(strings.TrimSuffix(pattern, "*"), "/", ".")
		switch {
		case name == "" || strings.ContainsAny(name, "* \t") || len(name) > 253:
			errs = append(errs, field.Invalid(at, pattern, `must be a sysctl such as "net.core.somaxconn", or the beginning of one before "*"`))
		case !slices.ContainsFunc([]string{"kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "net."}, func(group string) bool { return strings.HasPrefix(name, group) }):
			errs = append(errs, field.Invalid(at, pattern, "can't be given to pods, as it has no namespace: only kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.* can"))
		}
	}
	return errs
}
