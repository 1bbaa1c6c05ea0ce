package validation

import (
	"fmt"
	"path"
	"strings"
)

// previousMinor is the minor version before the version of the kubelet that this build replaces.
const previousMinor = "1.35"

const maxSamplingRate = 1_000_000

// host checks the settings that use or change the host.
func (k *check) host() {
	if n := *k.OOMScoreAdj; n < -1000 || n > 1000 {
		k.invalid(at("oomScoreAdj"), n, "must be from -1000 (never killed) to 1000")
	}
	atLeast(k, "maxOpenFiles", k.MaxOpenFiles, 0, "must be 0 or more")
	k.markBit("iptablesMasqueradeBit", *k.IPTablesMasqueradeBit)
	k.markBit("iptablesDropBit", *k.IPTablesDropBit)
	if dir := k.VolumePluginDir; !path.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		k.invalid(at("volumePluginDir"), dir,
			`must be the full path of a directory such as "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"`)
	}
}

func (k *check) markBit(name string, bit int32) {
	if bit < 0 || bit > 31 {
		k.invalid(at(name), bit, "must be from 0 to 31")
	}
}

// observing checks the settings of metrics and traces.
func (k *check) observing() {
	if v := k.ShowHiddenMetricsForVersion; v != "" && v != previousMinor {
		k.invalid(at("showHiddenMetricsForVersion"), v,
			fmt.Sprintf("must be %q, the previous minor version, or left out", previousMinor))
	}
	t := k.Tracing
	if t == nil {
		return
	}
	if r := t.SamplingRatePerMillion; r != nil && (*r < 0 || *r > maxSamplingRate) {
		k.invalid(at("tracing", "samplingRatePerMillion"), *r,
			fmt.Sprintf("must be from 0 (none of its own) to %d", maxSamplingRate))
	}
	if e := t.Endpoint; e != nil && !isCollector(*e) {
		k.invalid(at("tracing", "endpoint"), *e,
			`must be the address of a gRPC collector such as "localhost:4317", or dns://, unix:// or unix-abstract: with one`)
	}
}
