package kubeletconfig

import (
	"maps"
	"math"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// The cgroup drivers there are (KubeletConfiguration.cgroupDriver).
const (
	CgroupDriverCgroupfs = "cgroupfs"
	CgroupDriverSystemd  = "systemd"
)

// Log formats (KubeletConfiguration.logging.format).
const (
	LogFormatText = "text"
	LogFormatJSON = "json"
)

// minCheckFrequency keeps the periodic checks from becoming busy loops.
const minCheckFrequency = 100 * time.Millisecond

// Validate checks the fields this build uses, after SetDefaults. It returns
// everything that is wrong. Values that may be secret (headers, passwords in
// URLs) are not repeated.
func Validate(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateSources(c)...)
	errs = append(errs, validateServing(c)...)
	errs = append(errs, validateRuntime(c)...)
	errs = append(errs, validateLogs(c)...)
	errs = append(errs, validateImages(c)...)
	errs = append(errs, validateContainerLogs(c)...)
	return append(errs, validateContainerResources(c)...)
}

func validateSources(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"syncFrequency", c.SyncFrequency.Duration},
		{"fileCheckFrequency", c.FileCheckFrequency.Duration},
		{"httpCheckFrequency", c.HTTPCheckFrequency.Duration},
	} {
		if f.value < minCheckFrequency {
			errs = append(errs, field.Invalid(field.NewPath(f.name), f.value.String(), "must be at least "+minCheckFrequency.String()))
		}
	}
	if strings.ContainsRune(c.StaticPodPath, 0) {
		errs = append(errs, field.Invalid(field.NewPath("staticPodPath"), c.StaticPodPath, "must be the path of a file or folder"))
	}
	if c.StaticPodURL != "" {
		u, err := url.Parse(c.StaticPodURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, field.Invalid(field.NewPath("staticPodURL"), field.OmitValueType{}, `must be an http or https URL such as "https://host/pods.yaml"`))
		}
	}
	return append(errs, validateHeaders(field.NewPath("staticPodURLHeader"), c.StaticPodURLHeader)...)
}

func validateHeaders(at *field.Path, headers map[string][]string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !httpguts.ValidHeaderFieldName(name) {
			errs = append(errs, field.Invalid(at, name, "must be the name of an HTTP header: letters, digits and dashes"))
		}
		for _, v := range headers[name] {
			if !httpguts.ValidHeaderFieldValue(v) {
				errs = append(errs, field.Invalid(at.Key(name), field.OmitValueType{}, "must be the value of an HTTP header: one line without control characters"))
			}
		}
	}
	return errs
}

func validateServing(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateIP("address", c.Address)...)
	errs = append(errs, validateIP("healthzBindAddress", c.HealthzBindAddress)...)
	errs = append(errs, validatePort("readOnlyPort", c.ReadOnlyPort)...)
	return append(errs, validatePort("healthzPort", *c.HealthzPort)...)
}

func validateIP(name, value string) field.ErrorList {
	if _, err := netip.ParseAddr(value); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath(name), value, `must be an IP address such as "127.0.0.1" or "::"`)}
	}
	return nil
}

func validatePort(name string, value int32) field.ErrorList {
	if value < 0 || value > math.MaxUint16 {
		return field.ErrorList{field.Invalid(field.NewPath(name), value, "must be a port from 1 to 65535, or 0 to disable it")}
	}
	return nil
}

func validateRuntime(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateEndpoint("containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)...)
	errs = append(errs, validateEndpoint("imageServiceEndpoint", c.ImageServiceEndpoint)...)
	if c.ImageServiceEndpoint != "" && c.ContainerRuntimeEndpoint == "" {
		errs = append(errs, field.Forbidden(field.NewPath("imageServiceEndpoint"), "the embedded runtime serves its own images: set containerRuntimeEndpoint too, or neither"))
	}
	if c.RuntimeRequestTimeout.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("runtimeRequestTimeout"), c.RuntimeRequestTimeout.Duration.String(), "must be more than 0"))
	}
	if d := c.CgroupDriver; d != CgroupDriverCgroupfs && d != CgroupDriverSystemd {
		errs = append(errs, field.NotSupported(field.NewPath("cgroupDriver"), d, []string{CgroupDriverCgroupfs, CgroupDriverSystemd}))
	}
	if root := c.CgroupRoot; root != "" && (!path.IsAbs(root) || path.Clean(root) != strings.TrimRight(root, "/") && root != "/") {
		errs = append(errs, field.Invalid(field.NewPath("cgroupRoot"), root, `must be an absolute cgroup name such as "/" or "/kubelet", without ".."`))
	}
	if d := strings.TrimSuffix(c.ClusterDomain, "."); d != "" && len(utilvalidation.IsDNS1123Subdomain(d)) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("clusterDomain"), c.ClusterDomain, `must be a DNS domain in lower case such as "cluster.local"`))
	}
	if p := c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; p < time.Second || p > MaxContainerRestartPeriod {
		errs = append(errs, field.Invalid(field.NewPath("crashLoopBackOff", "maxContainerRestartPeriod"), p.String(), "must be from 1s to 300s"))
	}
	_, problems := PodCIDRs(c)
	return append(errs, problems...)
}

func validateEndpoint(name, value string) field.ErrorList {
	if value == "" {
		return nil
	}
	socket, ok := strings.CutPrefix(value, "unix://")
	if !ok || !path.IsAbs(socket) || strings.ContainsRune(socket, 0) {
		return field.ErrorList{field.Invalid(field.NewPath(name), value, `must be a unix socket such as "unix:///run/containerd/containerd.sock"`)}
	}
	return nil
}

// PodCIDRs parses podCIDR: nothing, one network, or one of each IP family
// separated by a comma, IPv4 or IPv6 first.
func PodCIDRs(c *v1beta1.KubeletConfiguration) ([]netip.Prefix, field.ErrorList) {
	if c.PodCIDR == "" {
		return nil, nil
	}
	var out []netip.Prefix
	bad := func(detail string) ([]netip.Prefix, field.ErrorList) {
		return nil, field.ErrorList{field.Invalid(field.NewPath("podCIDR"), c.PodCIDR, detail)}
	}
	for part := range strings.SplitSeq(c.PodCIDR, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		switch {
		case err != nil:
			return bad(`must be a network such as "10.72.0.0/16", or one of each family: "10.72.0.0/16,fd00:72::/64"`)
		case p.Masked() != p:
			return bad("has bits beyond its prefix length: must be " + p.Masked().String())
		case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().Is4In6():
			return bad("must be an ordinary network for pods, neither loopback nor multicast")
		case p.Addr().BitLen()-p.Bits() < 3:
			return bad("is too small: at least 8 addresses are needed")
		}
		out = append(out, p)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return bad("must hold at most one network of each IP family")
	}
	return out, nil
}

func validateLogs(c *v1beta1.KubeletConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateLogsDir(field.NewPath("podLogsDir"), c.PodLogsDir)...)
	at := field.NewPath("logging")
	if f := c.Logging.Format; f != LogFormatText && f != LogFormatJSON {
		errs = append(errs, field.NotSupported(at.Child("format"), f, []string{LogFormatText, LogFormatJSON}))
	}
	if v := c.Logging.Verbosity; v > math.MaxInt32 {
		errs = append(errs, field.Invalid(at.Child("verbosity"), v, "must be from 0 to 2147483647"))
	}
	return errs
}

// validateLogsDir holds to what the kubelet documents for podLogsDir: an
// absolute, normal path of ASCII letters only, since the runtime and log
// shippers have to agree on it.
func validateLogsDir(at *field.Path, dir string) field.ErrorList {
	if !path.IsAbs(dir) || path.Clean(dir) != strings.TrimSuffix(dir, "/") {
		return field.ErrorList{field.Invalid(at, dir, `must be an absolute, normalised folder such as "/var/log/pods/"`)}
	}
	for _, part := range strings.Split(strings.Trim(dir, "/"), "/") {
		if len(part) > utilvalidation.DNS1123SubdomainMaxLength || strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return field.ErrorList{field.Invalid(at, dir, "must be of visible ASCII letters only")}
		}
	}
	return nil
}
