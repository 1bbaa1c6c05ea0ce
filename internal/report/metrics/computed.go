package metrics

import "github.com/prometheus/client_golang/prometheus"

// computed is a metric whose values are computed at each scrape from the state S of another package, so that no gauge
// has to be kept up to date.
type computed[S any] struct {
	Description
	desc   *prometheus.Desc
	values func(state S, add series)
}

// series adds one series to a metric. The values of labels are in the order of the metric's labels.
type series func(value float64, labels ...string)

// number is the type of the state's numbers.
type number interface{ int | int64 | uint64 }

// gauge declares a computed gauge without labels.
func gauge[S any, N number](name, help string, value func(S) N) computed[S] {
	return gaugeVec(name, help, func(state S, add series) { add(float64(value(state))) })
}

// gaugeVec declares a computed gauge with labels.
func gaugeVec[S any](name, help string, values func(state S, add series), labels ...string) computed[S] {
	return computed[S]{Description{name, help, "gauge", labels}, prometheus.NewDesc(name, help, labels, nil), values}
}

// counter declares a computed counter without labels.
func counter[S any, N number](name, help string, value func(S) N) computed[S] {
	return counterVec(name, help, func(state S, add series) { add(float64(value(state))) })
}

// counterVec declares a computed counter with labels.
func counterVec[S any](name, help string, values func(state S, add series), labels ...string) computed[S] {
	return computed[S]{Description{name, help, "counter", labels}, prometheus.NewDesc(name, help, labels, nil), values}
}

// collector collects the metrics of a state.
type collector[S any] struct {
	read func() S
	list []computed[S]
}

// collect registers metrics of the state that read returns. read is called once for each scrape, so that the values
// are consistent.
func collect[S any](f factory, read func() S, list ...computed[S]) {
	for _, c := range list {
		f.declare(c.Name, c.Help, c.Type, c.Labels)
	}
	f.registry.MustRegister(collector[S]{read, list})
}

// Describe implements prometheus.Collector.
func (c collector[S]) Describe(ch chan<- *prometheus.Desc) {
	for i := range c.list {
		ch <- c.list[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c collector[S]) Collect(ch chan<- prometheus.Metric) {
	state := c.read()
	for _, m := range c.list {
		kind := prometheus.GaugeValue
		if m.Type == "counter" {
			kind = prometheus.CounterValue
		}
		m.values(state, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(m.desc, kind, value, labels...)
		})
	}
}
