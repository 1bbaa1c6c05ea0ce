package validation

import (
	"errors"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxCPUs is the number of CPUs that a list may have, so that expanding it can't take all memory. No Linux kernel
// supports more (CONFIG_NR_CPUS).
const maxCPUs = 8192

// isCPUList reports whether text is a list of CPUs in the kernel's format (cpuset(7)): "0,2-3".
func isCPUList(text string) bool {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 32)
		b, errB := strconv.ParseUint(last, 10, 32)
		if errA != nil || errB != nil || a > b || b >= maxCPUs {
			return false
		}
	}
	return true
}

// isCgroup reports whether name is a valid name of a cgroup: no part of it is empty, "." or "..". As in the kubelet, a
// name without a leading slash is valid and means the same cgroup.
func isCgroup(name string) bool {
	rooted := path.Clean("/" + name)
	return "/"+strings.Trim(name, "/") == rooted && !strings.ContainsRune(name, 0)
}

// isDomain reports whether name is a DNS domain. It is permissive: resolvers accept upper case and underscores.
func isDomain(name string) bool {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return false
	}
	odd := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > validation.DNS1123LabelMaxLength || label[0] == '-' ||
			strings.ContainsFunc(label, odd) {
			return false
		}
	}
	return true
}

// isSysctl reports whether name is that of a sysctl, its parts separated by dots, or a prefix of one.
func isSysctl(name string) bool {
	odd := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && r != '-' && r != '_' && r != '.'
	}
	return name != "" && len(name) < 253 && !strings.ContainsFunc(name, odd)
}

// isNamespaced reports whether the sysctl called name is namespaced, so that a pod can have its own value. If prefix is
// set, it reports whether all sysctls whose names begin with name are namespaced.
func isNamespaced(name string, prefix bool) bool {
	for _, group := range []string{"kernel.shm", "kernel.msg", "fs.mqueue.", "net."} {
		if strings.HasPrefix(name, group) {
			return true
		}
	}
	return name == "kernel.sem" || prefix && strings.HasPrefix(name, "kernel.sem")
}

// isCollector reports whether endpoint is the address of a trace collector, in gRPC's name syntax
// (github.com/grpc/grpc/blob/master/doc/naming.md).
func isCollector(endpoint string) bool {
	if !strings.Contains(endpoint, "//") {
		endpoint = "dns://" + endpoint
	}
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "dns" || u.Scheme == "unix" || u.Scheme == "unix-abstract")
}

// overlap reports whether listeners on the addresses a and b conflict if they have the same port. It is false for
// invalid addresses.
func overlap(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	covers := func(x, y netip.Addr) bool { return x.IsUnspecified() && (x.Is6() || y.Is4()) }
	return errX == nil && errY == nil && (x == y || covers(x, y) || covers(y, x))
}

// networks parses a pod network, or one of each IP family separated by a comma. The error describes valid values.
func networks(text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, errors.New(`must be a network such as "10.72.0.0/16", or one of each family: "10.72.0.0/16,fd00:72::/64"`)
		case p.Masked() != p:
			return nil, errors.New("has bits beyond its prefix length: must be " + p.Masked().String())
		case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().Is4In6():
			return nil, errors.New("must be an ordinary network for pods, neither loopback nor multicast")
		case p.Addr().BitLen()-p.Bits() < 3:
			return nil, errors.New("is too small: at least 8 addresses are needed")
		}
		out = append(out, p)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, errors.New("must hold at most one network of each IP family")
	}
	return out, nil
}
