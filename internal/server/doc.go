// Package server serves the agent's plain HTTP endpoints, with the kubelet's paths and formats: health, metrics, a
// read-only API (/pods, /runningpods/, /spec/), and pages for diagnosis (/configz, /flagz and /statusz, KEP-4827 and
// KEP-4828).
//
// Health and NewReadOnly make the handlers; a Server listens and serves them. Callers pass in the data: the package
// reads none from other packages.
//
// The packages below it: secure is the HTTPS server, with its certificate, authentication, authorization and table of
// routes; nodeapi fills that table with the kubelet's API; local is the unix socket of the commands on this machine,
// and local/view makes their snapshots; podresources is the kubelet's pod resources API. The wing changes no pod by
// itself.
//
// # A request to the HTTPS server
//
// The request is first matched with a route in the table (secure.Route). The user is determined by client certificate,
// then by token; a request with neither is anonymous. The user has to be authorized for one of the route's
// subresources. The API server's answers are cached for as long as the configuration specifies, separately for each
// user; errors are never cached.
//
// Requests without a time limit are streams (Stream): they are counted separately, and end when the agent stops, which
// waits for them. Each stream is recorded in the log with its user, and so is each request that changes something. For
// exec, attach and port-forward the agent asks the runtime for a URL, which has to be on this machine, and connects the
// client to that URL.
//
// Commands on this machine use the same handlers (nodeapi.Sessions) over the socket, which only root and the agent's
// user may open. Package command/streams implements the commands' end of a stream; command/transfer unpacks archives
// from containers, which are never trusted.
package server
