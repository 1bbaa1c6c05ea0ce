// Package config makes one validated, immutable Config out of configuration files, the command line and the host's own
// values, and replaces it when they change while the agent runs (Reloader).
//
// Later sources override earlier ones, as in the kubelet: documented defaults, the file (--config), the drop-ins
// (--config-dir) in the order of their names, the flags on the command line.
//
// The packages below it: document reads and merges files, flags is the command line, gates the feature gates,
// validation the rules for values, paths names each setting, and fields is the table that says what this build does
// with each field.
//
// The Reloader is the one owner of the configuration in force. It owns no effects: agent.liveSettings applies those
// settings that may change in a running agent.
package config
