// Package report is the wing of the agent's reports: the API status of every pod (podstatus), events (events), metrics
// (metrics) and traces (tracing). It has no code of its own.
//
// Other wings pass facts to it, or functions that return them. Only each pod's worker writes the pod's status, and only
// events.Recorder writes events. Packages cluster/podobject and cluster/eventsink read statuses and events from this
// wing and send them to an API server.
package report
