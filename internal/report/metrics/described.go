package metrics

import (
	"slices"
	"strings"
)

// Description describes a metric, without its values.
type Description struct {
	Name, Help string
	// Type is counter, gauge or histogram.
	Type   string
	Labels []string
}

// Described lists all metrics that an agent may have, by name, except those of the Go runtime and the process. The
// metrics reference is generated from it.
func Described() []Description {
	var all []Description
	m := newMetrics(Info{}, &all)
	m.CollectPods(nil)
	m.CollectPullRecords(nil)
	m.CollectEvents(nil)
	m.CollectJournal(nil)
	m.CgroupVersion(nil)
	m.CollectVolumes(nil)
	m.CollectLogs(nil)
	m.CollectVolumeStats(nil)
	m.CollectPodDisk(nil)
	m.Features(nil)
	m.CredentialConfig("")
	slices.SortFunc(all, func(a, b Description) int { return strings.Compare(a.Name, b.Name) })
	return all
}
