package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// APIClient records requests to the API server, with client-go's metrics.
type APIClient struct {
	requests, retries      *prometheus.CounterVec
	duration, waited       *prometheus.HistogramVec
	sent, received         *prometheus.HistogramVec
	plugin, transportsMade *prometheus.CounterVec
	eventsSent             prometheus.Counter
	eventsLost             *prometheus.CounterVec
}

func newAPIClient(f factory) *APIClient {
	times := []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}
	sizes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	return &APIClient{
		requests: f.counterVec("rest_client_requests_total",
			"Number of HTTP requests, partitioned by status code, method, and host.", "code", "method", "host"),
		retries: f.counterVec("rest_client_request_retries_total",
			"Number of request retries, partitioned by status code, verb, and host.", "code", "verb", "host"),
		duration: f.histogramVec("rest_client_request_duration_seconds",
			"Request latency in seconds. Broken down by verb, and host.", times, "verb", "host"),
		waited: f.histogramVec("rest_client_rate_limiter_duration_seconds",
			"Client side rate limiter latency in seconds. Broken down by verb, and host.", times, "verb", "host"),
		sent: f.histogramVec("rest_client_request_size_bytes",
			"Request size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
		received: f.histogramVec("rest_client_response_size_bytes",
			"Response size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
		plugin: f.counterVec("rest_client_exec_plugin_call_total",
			"Number of calls to an exec plugin, partitioned by the type of event encountered and an optional exit "+
				"code.", "code", "call_status"),
		transportsMade: f.counterVec("rest_client_transport_create_calls_total",
			"Number of calls to get a new transport, partitioned by the result of the operation.", "result"),
		eventsSent: f.counter("deckhand_api_events_told_total",
			"Number of events, or updates of earlier ones, that were sent to the API server."),
		eventsLost: f.counterVec("deckhand_api_events_lost_total",
			"Number of events that weren't sent to the API server, by reason: too many at once (overload), "+
				"refused by the server, or failed repeatedly.", "reason"),
	}
}

// Requested records a request by the HTTP status of the response, "<error>" if there was no response.
func (c *APIClient) Requested(code, method, host string) {
	c.requests.WithLabelValues(code, method, host).Inc()
}

// Took records the duration of a call, and the sizes of the bodies of request and response in bytes.
func (c *APIClient) Took(verb, host string, d time.Duration, sent, received int) {
	c.duration.WithLabelValues(verb, host).Observe(d.Seconds())
	c.sent.WithLabelValues(verb, host).Observe(float64(sent))
	c.received.WithLabelValues(verb, host).Observe(float64(received))
}

// Waited records how long the client-side rate limiter delayed a call.
func (c *APIClient) Waited(verb, host string, d time.Duration) {
	c.waited.WithLabelValues(verb, host).Observe(d.Seconds())
}

// Retried records that a watch is retried after a failure with this HTTP status.
func (c *APIClient) Retried(code, verb, host string) {
	c.retries.WithLabelValues(code, verb, host).Inc()
}

// PluginCalled records a run of a credential plugin.
func (c *APIClient) PluginCalled(code int, status string) {
	c.plugin.WithLabelValues(strconv.Itoa(code), status).Inc()
}

// TransportMade records a new transport. Its label is uncacheable, as in client-go for transports that aren't cached.
func (c *APIClient) TransportMade() { c.transportsMade.WithLabelValues("uncacheable").Inc() }

// EventSent records that an event, or an update of one, was sent to the API server.
func (c *APIClient) EventSent() { c.eventsSent.Inc() }

// EventLost records that an event couldn't be sent to the API server, and why.
func (c *APIClient) EventLost(why string) { c.eventsLost.WithLabelValues(why).Inc() }
