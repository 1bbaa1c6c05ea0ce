package fields

const gateLogOptions = "LoggingAlphaOptions"

func containerLogs() []Field {
	return []Field{
		{Path: "podLogsDir", Package: "runtime/logs/layout",
			Doc: "The directory for the logs of containers: an absolute path of ASCII letters. If it isn't " +
				"/var/log/pods, configure log shippers accordingly."},
		{Path: "containerLogMaxSize", Package: "runtime/logs/rotate", Live: true,
			Doc: "How big a container's log may become before a new file is begun, such as 10Mi; negative for any size."},
		{Path: "containerLogMaxFiles", Package: "runtime/logs/rotate", Live: true,
			Doc: "How many log files a container may have, the one being written included: at least 2."},
		{Path: "containerLogMaxWorkers", Package: "runtime/logs/rotate", Live: true,
			Doc: "How many logs may be rotated at the same time, at least 1."},
		{Path: "containerLogMonitorInterval", Package: "runtime/logs/rotate", Live: true,
			Doc: "The longest time between two checks of a log's size, at least 3s. A log that grows is checked " +
				"within a second."},
	}
}

func logging() []Field {
	buffer := "how much of the informational messages is collected before it is written, such as 64Ki; 0 writes each " +
		"at once. It counts only with splitStream."
	return []Field{
		{Path: "logging.format", Package: "kit/logging",
			Doc: "How the agent writes its log: text, or json (an object on each line; needs the feature gate " +
				"LoggingBetaOptions, which is on by default)."},
		{Path: "logging.verbosity", Package: "kit/logging", Live: true,
			Doc: "How much the agent logs, from 0: with 2 normal operations, with 4 details. Errors are always logged."},
		{Path: "logging.vmodule", Package: "kit/logging", Live: true, Default: "none",
			Doc: "Another verbosity for some source files: a list of filePattern (a name without .go, or a glob) and " +
				"verbosity. Only with the format text."},
		{Path: "logging.flushFrequency", Package: "kit/logging",
			Doc: "How long messages may wait in a buffer before they are written: a duration, or a number of " +
				"nanoseconds."},
		{Path: "logging.options.text.splitStream", Package: "kit/logging",
			Doc: "With the format text: write errors to stderr and the rest to stdout."},
		{Path: "logging.options.text.infoBufferSize", Package: "kit/logging", Gate: gateLogOptions,
			Doc: "With the format text: " + buffer},
		{Path: "logging.options.json.splitStream", Package: "kit/logging",
			Doc: "With the format json: write errors to stderr and the rest to stdout."},
		{Path: "logging.options.json.infoBufferSize", Package: "kit/logging", Gate: gateLogOptions,
			Doc: "With the format json: " + buffer},
	}
}
