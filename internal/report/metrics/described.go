package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// registry keeps a list of the collectors, which prometheus.Registry doesn't export.
type registry struct {
	*prometheus.Registry
	all []prometheus.Collector
	// levels counts the metrics with the kubelet's names by their stability level.
	levels map[string]int
}

// MustRegister registers collectors as prometheus.Registry does, and adds them to the list. It must not be called
// after the metrics are served.
func (r *registry) MustRegister(list ...prometheus.Collector) {
	r.Registry.MustRegister(list...)
	r.all = append(r.all, list...)
	for _, c := range list {
		for _, d := range descriptions(c) {
			if name := parseDesc(d).Name; !ofLibraries(name) && !strings.HasPrefix(name, "deckhand_") {
				r.levels[level(name)]++
			}
		}
	}
}

// descriptions returns the descriptions of a collector's metrics.
func descriptions(c prometheus.Collector) []*prometheus.Desc {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.Describe(ch)
	}()
	var list []*prometheus.Desc
	for d := range ch {
		list = append(list, d)
	}
	return list
}

// ofLibraries reports whether a metric is one of the Go runtime or the process, which the client library defines.
func ofLibraries(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

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
	m := New(Info{})
	// Register each optional collector once, with one value each.
	m.CollectPods(func() PodCounts { return PodCounts{Containers: map[pod.ContainerState]int{}} })
	m.CollectPullRecords(func() (intents, records int) { return 0, 0 })
	m.CollectEvents(func() EventStats { return EventStats{} })
	m.CgroupVersion(func() int { return 2 })
	m.CollectVolumes(func() VolumeCounts { return VolumeCounts{Desired: map[string]int{"": 1}} })
	m.CollectLogs(func() []LogUse { return make([]LogUse, 1) })
	m.CollectVolumeStats(func() []VolumeStats { return make([]VolumeStats, 1) })
	m.CollectPodDisk(func() []PodDisk { return make([]PodDisk, 1) })
	m.Features(make([]Feature, 1))
	m.CredentialConfig("")
	var all []Description
	for _, c := range m.registry.all {
		all = append(all, describe(c)...)
	}
	slices.SortFunc(all, func(a, b Description) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(d Description) bool { return ofLibraries(d.Name) })
}

func describe(c prometheus.Collector) []Description {
	types := typesOf(c)
	var list []Description
	for _, d := range descriptions(c) {
		made := parseDesc(d)
		made.Type = types(d)
		list = append(list, made)
	}
	return list
}

// typesOf returns a function that returns the type of each metric of a collector.
func typesOf(c prometheus.Collector) func(*prometheus.Desc) string {
	always := func(name string) func(*prometheus.Desc) string {
		return func(*prometheus.Desc) string { return name }
	}
	switch c.(type) { // collectors that may have no values yet
	case *prometheus.CounterVec:
		return always("counter")
	case *prometheus.GaugeVec:
		return always("gauge")
	case *prometheus.HistogramVec:
		return always("histogram")
	}
	values := make(chan prometheus.Metric, 1000)
	c.Collect(values)
	close(values)
	found := map[*prometheus.Desc]string{}
	for v := range values {
		var m dto.Metric
		if v.Write(&m) != nil {
			continue
		}
		switch {
		case m.Counter != nil:
			found[v.Desc()] = "counter"
		case m.Gauge != nil:
			found[v.Desc()] = "gauge"
		case m.Histogram != nil:
			found[v.Desc()] = "histogram"
		}
	}
	return func(d *prometheus.Desc) string { return found[d] }
}

// descText parses the string form of a description, which has no other accessors.
var descText = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func parseDesc(d *prometheus.Desc) Description {
	m := descText.FindStringSubmatch(d.String())
	if m == nil {
		return Description{Help: fmt.Sprint(d)}
	}
	var out Description
	// The library quotes both; errors can't occur.
	out.Name, _ = strconv.Unquote(m[1])
	out.Help, _ = strconv.Unquote(m[2])
	for label := range strings.SplitSeq(m[3], ",") {
		if name, _, ok := strings.Cut(label, "="); ok {
			out.Labels = append(out.Labels, name)
		}
	}
	if m[4] != "" {
		out.Labels = append(out.Labels, strings.Split(m[4], ",")...)
	}
	return out
}
