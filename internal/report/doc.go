// Package report is the wing of the agent's reports: the API status of every pod (podstatus), events (events), metrics
// (metrics) and traces (tracing). It has no code of its own.
//
// Other wings pass facts to it, or functions that return them. Each pod's worker is the one writer of the pod's
// status, and events.Recorder the one writer of events. Sending statuses and events to an API server is the task of
// packages cluster/podobject and cluster/eventsink, which read them from this wing.
package report
