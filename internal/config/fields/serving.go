package fields

func serving() []Field {
	return []Field{
		{Path: "healthzPort", Package: "server",
			Doc: "The port of /healthz, which says whether the agent is healthy; 0 for none."},
		{Path: "healthzBindAddress", Package: "server",
			Doc: "The IP address that /healthz is served on. Any other than 127.0.0.1 or ::1 can be reached from " +
				"outside."},
		{Path: "readOnlyPort", Package: "server", Default: "0 (none)",
			Doc: "The port of the read-only API (/pods, /metrics, ...), which serves any client without " +
				"authentication; 0 for none. In a cluster it has /healthz, /pods and /metrics.",
			Departs: "where it isn't set and no kubeconfig is given, it is 10255 on 127.0.0.1, since such a node has " +
				"no other API by default; in a cluster it is 0 by default also where there is no --config"},
		{Path: "address", Package: "server",
			Doc: "The IP address that the ports of the agent's API are served on, readOnlyPort among them; " +
				"0.0.0.0 or :: for all.",
			Departs: "where it isn't set, the read-only API, which has no authentication, is on 127.0.0.1"},
		{Path: "showHiddenMetricsForVersion", Why: "this build hides no metrics",
			Doc: "Serve the metrics that were hidden since this release, the one before: 1.35."},
		{Path: "tracing.endpoint", Package: "report/tracing", Default: "localhost:4317, if tracing is set",
			Doc: "Where traces are sent to by OTLP over gRPC, without TLS: host:port."},
		{Path: "tracing.samplingRatePerMillion", Package: "report/tracing", Default: "only calls that the client " +
			"traces",
			Doc: "How many of a million calls are traced in addition to those that the client traces."},
	}
}

func https() []Field {
	return []Field{
		{Path: "enableServer", Package: "config",
			Doc: "Serve the authenticated API over HTTPS. The read-only one and /healthz have switches of their " +
				"own.",
			Departs: "without --kubeconfig it is served only with authorization.mode: AlwaysAllow, and clientCAFile " +
				"or anonymous.enabled"},
		{Path: "port", Package: "server/secure",
			Doc: "The port of the HTTPS server, from 1 to 65535."},
		{Path: "tlsCertFile", Package: "server/secure",
			Default: "kubelet.crt in --cert-dir, which the agent makes itself",
			Doc: "The file with the server's certificate in PEM, followed by its intermediate CAs. It is read " +
				"again when it changes."},
		{Path: "tlsPrivateKeyFile", Package: "server/secure",
			Default: "kubelet.key in --cert-dir, which the agent makes itself",
			Doc:     "The file with the private key of tlsCertFile in PEM."},
		{Path: "tlsCipherSuites", Package: "server/secure", Default: "those Go deems safe",
			Doc: "Which cipher suites clients may choose up to TLS 1.2, by their names in Go's crypto/tls. Those of " +
				"TLS 1.3 can't be chosen."},
		{Path: "tlsCurvePreferences", Package: "server/secure", Default: "those Go prefers",
			Doc: "Which key exchanges are offered: numbers of crypto/tls.CurveID, in any order."},
		{Path: "tlsMinVersion", Package: "server/secure", Default: "that of Go",
			Doc: "The oldest version of TLS that clients may use: VersionTLS12 or VersionTLS13, say."},
		{Path: "enableDebuggingHandlers", Package: "server/nodeapi",
			Doc: "Serve the endpoints that inspect containers and the agent: logs, exec, attach and port-forward, " +
				"/runningpods, profiles and flags."},
		{Path: "enableProfilingHandler", Package: "server/nodeapi",
			Doc: "Serve profiles of the agent under /debug/pprof/. It counts only with enableDebuggingHandlers."},
		{Path: "enableContentionProfiling", Package: "agent",
			Doc: "Profile also the goroutines that wait for locks. It counts only with enableDebuggingHandlers."},
		{Path: "enableDebugFlagsHandler", Package: "server/nodeapi",
			Doc: "Serve /debug/flags/v, by which the verbosity of the log is changed. It counts only with " +
				"enableDebuggingHandlers."},
		{Path: "enableSystemLogHandler", Package: "server/nodeapi",
			Doc: "Serve the files of /var/log under /logs/, except through links that lead out of it. It counts only " +
				"with enableDebuggingHandlers."},
		{Path: "enableSystemLogQuery", Package: "server/nodeapi",
			Doc: "Answer queries for logs of the host's services under /logs/. It needs enableSystemLogHandler, " +
				"counts only with enableDebuggingHandlers, and lets clients that may query read the journal."},
		{Path: "streamingConnectionIdleTimeout", Why: deprecated,
			Doc: "Used to be how long exec, attach and port-forward might be silent before they were closed."},
	}
}

func access() []Field {
	return []Field{
		{Path: "authentication.anonymous.enabled", Package: "server/secure",
			Doc:     "Accept requests without credentials, as user system:anonymous.",
			Departs: "it is off by default also where there is no --config"},
		{Path: "authentication.webhook.enabled", Package: "server/secure", Cluster: true,
			Doc:     "Authenticate bearer tokens of requests by the API server (TokenReview).",
			Departs: "it is on by default also where there is no --config"},
		{Path: "authentication.webhook.cacheTTL", Package: "server/secure", Cluster: true,
			Doc: "How long the API server's response about a token is cached."},
		{Path: "authentication.x509.clientCAFile", Package: "server/secure", Default: "none: no client certificates",
			Doc: "The file with the certificate authorities, in PEM, that sign client certificates. The name and " +
				"organisations in a client's certificate are its user and groups. It is read again when it changes."},
		{Path: "authorization.mode", Package: "server/secure",
			Doc: "How requests are authorized: Webhook (by the API server, with SubjectAccessReview), or " +
				"AlwaysAllow (every authenticated request).",
			Departs: "it is Webhook by default also where there is no --config"},
		{Path: "authorization.webhook.cacheAuthorizedTTL", Package: "server/secure", Cluster: true,
			Doc: "How long \"allowed\" responses of the API server are cached."},
		{Path: "authorization.webhook.cacheUnauthorizedTTL", Package: "server/secure", Cluster: true,
			Doc: "How long \"denied\" responses of the API server are cached."},
	}
}
