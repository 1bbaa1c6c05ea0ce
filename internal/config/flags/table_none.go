package flags

import "time"

// noCAdvisor is the reason why the flags of the kubelet's cAdvisor have no effect. All of these flags but one are
// deprecated, because they became flags of the kubelet by accident.
const noCAdvisor = "it is for cAdvisor, which this build doesn't have"

// withoutEffect returns the flags that are accepted only because existing unit files have them.
func withoutEffect() []row {
	rows := append(cadvisor(),
		row{name: "storage-driver-password", to: new(string), def: "root", masked: maskAll,
			help: "cAdvisor: the `password` at the database."},
	)
	for i := range rows {
		rows[i].deprecated, rows[i].instead, rows[i].why = true, "leave it out", noCAdvisor
	}
	return append(rows,
		row{name: "housekeeping-interval", to: new(time.Duration), def: "10s", why: noCAdvisor,
			help: "cAdvisor: measure containers every `duration`."},
		row{name: "experimental-mounter-path", to: new(string), deprecated: true, instead: "use a CSI driver",
			why: "this build mounts without another program", help: "Mount with this `program`."},
		row{name: "experimental-allocatable-ignore-eviction", to: new(bool), deprecated: true, instead: "leave it out",
			why: "evictionHard always reduces the node's allocatable", help: "Leave --eviction-hard out of the node's allocatable."},
	)
}

func cadvisor() []row {
	return []row{
		{name: "application-metrics-count-limit", to: new(int), def: "100",
			help: "cAdvisor: the `number` of metrics of each container."},
		{name: "boot-id-file", to: new(string), def: "/proc/sys/kernel/random/boot_id",
			help: "cAdvisor: the boot ID is in one of these `files`."},
		{name: "container-hints", to: new(string), def: "/etc/cadvisor/container_hints.json",
			help: "cAdvisor: its hints are in this `file`."},
		{name: "containerd", to: new(string), def: "/run/containerd/containerd.sock",
			help: "cAdvisor: containerd's `socket`."},
		{name: "containerd-namespace", to: new(string), def: "k8s.io",
			help: "cAdvisor: the `namespace` in containerd."},
		{name: "enable-load-reader", to: new(bool), help: "cAdvisor: read the load."},
		{name: "event-storage-age-limit", to: new(string), def: "default=0",
			help: "cAdvisor: how long events are kept, as `type=duration`."},
		{name: "event-storage-event-limit", to: new(string), def: "default=0",
			help: "cAdvisor: how many events are kept, as `type=number`."},
		{name: "global-housekeeping-interval", to: new(time.Duration), def: "1m",
			help: "cAdvisor: look for containers every `duration`."},
		{name: "log-cadvisor-usage", to: new(bool), help: "cAdvisor: log what it uses."},
		{name: "machine-id-file", to: new(string), def: "/etc/machine-id,/var/lib/dbus/machine-id",
			help: "cAdvisor: the machine ID is in one of these `files`."},
		{name: "storage-driver-buffer-duration", to: new(time.Duration), def: "1m",
			help: "cAdvisor: write to the database every `duration`."},
		{name: "storage-driver-db", to: new(string), def: "cadvisor", help: "cAdvisor: the database's `name`."},
		{name: "storage-driver-host", to: new(string), def: "localhost:8086", help: "cAdvisor: the database's `host`."},
		{name: "storage-driver-secure", to: new(bool), help: "cAdvisor: talk to the database encrypted."},
		{name: "storage-driver-table", to: new(string), def: "stats", help: "cAdvisor: the `table` in the database."},
		{name: "storage-driver-user", to: new(string), def: "root", help: "cAdvisor: the `user` at the database."},
	}
}
