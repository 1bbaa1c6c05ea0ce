// Package config builds one validated, immutable Config from configuration files, the command line and the host's own
// values, and replaces it when they change while the agent runs (Reloader).
//
// Later sources override earlier ones, as in the kubelet: documented defaults, the file (--config), the drop-ins
// (--config-dir) in the order of their names, the flags on the command line.
//
// Its subpackages: document reads and merges files; flags defines the command-line flags; gates defines the feature
// gates; validation checks values; paths names each setting; fields is the table of each field's effect in this build.
//
// The Reloader is the only owner of the configuration in effect. It doesn't apply settings itself: agent.liveSettings
// applies the settings that may change in a running agent.
package config
