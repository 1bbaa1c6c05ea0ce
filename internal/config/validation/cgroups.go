package validation

import (
	"path"
	"slices"
	"strings"
)

// The cgroup drivers (KubeletConfiguration.cgroupDriver).
const (
	CgroupDriverCgroupfs = "cgroupfs"
	CgroupDriverSystemd  = "systemd"
)

// Values of KubeletConfiguration.enforceNodeAllocatable.
const (
	enforceNone               = "none"
	EnforcePods               = "pods"
	EnforceSystem             = "system-reserved"
	EnforceSystemCompressible = "system-reserved-compressible"
	EnforceKube               = "kube-reserved"
	EnforceKubeCompressible   = "kube-reserved-compressible"
)

// cgroups checks the names of cgroups.
func (k *check) cgroups() {
	oneOf(k, at("cgroupDriver"), k.CgroupDriver, CgroupDriverCgroupfs, CgroupDriverSystemd)
	if root := k.CgroupRoot; root != "" && (!path.IsAbs(root) || !isCgroup(root)) {
		k.invalid(at("cgroupRoot"), root, `must be an absolute cgroup name such as "/" or "/kubelet", without ".."`)
	}
	for _, f := range []struct{ name, value string }{
		{"kubeletCgroups", k.KubeletCgroups},
		{"systemCgroups", k.SystemCgroups},
		{"systemReservedCgroup", k.SystemReservedCgroup},
		{"kubeReservedCgroup", k.KubeReservedCgroup},
	} {
		if f.value != "" && !isCgroup(f.value) {
			k.invalid(at(f.name), f.value, `must be a cgroup name such as "/system.slice/deckhand", without ".."`)
		}
	}
	if k.SystemCgroups != "" && k.CgroupRoot == "" {
		k.required(at("cgroupRoot"), at("systemCgroups"),
			`it is needed beside systemCgroups; "/" is the host's own root`)
	}
}

// allocatable checks enforceNodeAllocatable.
func (k *check) allocatable() {
	list := k.EnforceNodeAllocatable
	for i, what := range list {
		path := at("enforceNodeAllocatable").Index(i)
		oneOf(k, path, what, enforceNone, EnforcePods, EnforceSystem, EnforceSystemCompressible, EnforceKube,
			EnforceKubeCompressible)
		if slices.Contains(list[:i], what) {
			k.duplicate(path, what)
		}
		if what == enforceNone && len(list) > 1 {
			k.invalid(path, what, "must be the only one where nothing is to be enforced")
		}
		if full, ok := strings.CutSuffix(what, "-compressible"); ok && slices.Contains(list, full) {
			k.invalid(path, what, "can't be given together with "+full+", which it is a part of")
		}
	}
	k.enforcedCgroup("systemReservedCgroup", k.SystemReservedCgroup, EnforceSystem, EnforceSystemCompressible)
	k.enforcedCgroup("kubeReservedCgroup", k.KubeReservedCgroup, EnforceKube, EnforceKubeCompressible)
	enforced := func(what string) bool { return what != enforceNone }
	if !*k.CgroupsPerQOS && slices.ContainsFunc(list, enforced) {
		k.invalid(at("cgroupsPerQOS"), false,
			"must be true, or enforceNodeAllocatable must be [none]: it is enforced through the cgroups of QoS classes")
	}
}

func (k *check) enforcedCgroup(name, value string, kinds ...string) {
	for _, kind := range kinds {
		if value == "" && slices.Contains(k.EnforceNodeAllocatable, kind) {
			k.required(at(name), at("enforceNodeAllocatable"), "it is needed for "+kind+" in enforceNodeAllocatable")
		}
	}
}
