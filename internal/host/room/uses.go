package room

// Use is a kind of file that the agent writes.
type Use struct {
	// Path is relative to the root directory. A Path that begins with "/" is absolute; one that begins with "-" is a
	// flag whose value is the path. In a Path, * is any name, ** any path.
	Path string
	// Writers are the functions that write the file, as "package.function" or "package.type.method". Packages are
	// below internal, or begin with "cmd/".
	Writers []string
	// Failure describes the consequences if the file can't be written.
	Failure Failure
}

// Failure describes, for users, the consequences if a file can't be written.
type Failure struct {
	// GoesOn lists the functions that still work, Waits the functions that don't work until there is room, and Reported
	// the places where users see the failure.
	GoesOn, Waits, Reported string
}

// Uses lists the files that the agent writes. Tests compare it with the source and with docs/reference/files.md.
func Uses() []Use {
	return []Use{
		{"checkpoints/pods/*/kept.json", []string{"worker/executor.Executor.saveCheckpoint"}, podRecord},
		{"checkpoints/stopped.json", []string{"desired.Stops.write"}, stops},
		{"checkpoints/pressure_state", []string{"resources/pressure.save"}, pressureState},
		{Probe, []string{"host/room.Watch.followRoot"}, probe},
		{"reserve/*", []string{"host/room.Reserve.fill"}, reserve},

		{"checkpoints/pods/*/allocation.json", []string{"resources/allocation.Manager.write"}, ledger},
		{"device-plugins/kubelet_internal_checkpoint", []string{"resources/devices.write"}, deviceRecord},
		{"cpu_manager_state", []string{"resources/assign.Manager.write"}, cpuRecord},
		{"checkpoints/volumes/bindings.json", []string{"volume/binder.Binder.replace"}, claims},
		{"pods/*/claims/*", []string{"volume/manager/volumestate.Holders.mark"}, claims},
		{"pods/*/userns", []string{"runtime/userns.Manager.write"}, podFiles},

		{"checkpoints/desired/file.json", []string{"desired/manifeststore.Store.replace"}, lastGood},
		{"checkpoints/desired/http.json", []string{"desired/manifeststore.Store.replace"}, lastGood},
		{"checkpoints/added.json", []string{"desired.Additions.write"}, command},
		{"checkpoints/apiserver.jsonl", []string{"cluster/lastknown.New"}, lastKnown},
		{"checkpoints/events.jsonl", []string{"report/events.NewHistory"}, eventFile},
		{"checkpoints/images.json", []string{"image/gc.records.save"}, imageRecords},
		{"journal/*.txtar", []string{"worker/journal.store.fill"}, journal},
		{"journal/previous/*.txtar", []string{"worker/journal.store.fill"}, journal},
		{"journal/failed/*", []string{"worker/journal.store.fill"}, journal},
		{"journal/.running", []string{"worker/journal.store.mark"}, journal},

		{"pods/*/volumes/**", []string{"volume/atomicwriter.writer.writeFile"}, podFiles},
		{"pods/*/volume-subpaths/**", []string{"volume/subpath.makePlace"}, podFiles},
		{"pods/*/containers/**", []string{"volume/atomicwriter.Files.Message"}, podFiles},
		{"pods/*/etc-hosts", []string{"volume/atomicwriter.Files.Hosts"}, podFiles},
		{"pods/*/volumes/kubernetes.io~csi/*/vol_data.json", []string{"volume/csi.record.write"}, podFiles},
		{"plugins/kubernetes.io/csi/*/*/vol_data.json", []string{"volume/csi.record.write"}, podFiles},
		{"staged/*/device", []string{"volume/manager/volumestate.Stages.write"}, podFiles},
		{"staged/*/users/*/*", []string{"volume/manager/volumestate.record.write"}, podFiles},
		{"/ the path of a hostPath volume", []string{"volume/plugins.makeFile"}, podFiles},
		{"/var/log/pods/*/*/*.gz", []string{"runtime/logs/layout.ContainerDir.Create"}, logs},

		{"image_manager/pulling/*", []string{"image/access.files.write"}, pulls},
		{"image_manager/pulled/*", []string{"image/access.files.write"}, pulls},
		{"image_manager/imported/*", []string{"image/access.files.write"}, command},
		{"image_manager/deckhand.key", []string{"image/access.loadKey"}, start},
		{"images/*.tar", []string{"cmd/deckhand/command.copyArchives"}, command},
		{"images/.imported.json", []string{"runtime/embedded/archives.imported.write"}, imageRecords},
		{"containerd/certs.d/**", []string{"runtime/embedded.describe"}, pulls},

		{"pki/kubelet-client-current.pem", []string{"cluster/certificates.files.save"}, certificates},
		{"pki/kubelet-server-current.pem", []string{"cluster/certificates.files.save"}, certificates},
		{"pki/kubelet-client.key.tmp", []string{"cluster/certificates.files.nextKey"}, certificates},
		{"pki/kubelet-server.key.tmp", []string{"cluster/certificates.files.nextKey"}, certificates},
		{"--kubeconfig", []string{"cluster/certificates.ClientConfig.ask"}, certificates},
		{"pki/kubelet.crt", []string{"server/secure.Certificate.makeOwn"}, start},
		{"pki/kubelet.key", []string{"server/secure.Certificate.makeOwn"}, start},

		{".deckhand", []string{"host/rootdir.Runtime.Claim"}, start},
		{"deckhand.lock", []string{"host/lockfile.acquire"}, start},
		{"--lock-file", []string{"host/lockfile.openNamed"}, start},
		{"footprint.json", []string{"agent/reset.Record"}, footprint},
		{"containerd/config.toml", []string{"runtime/embedded.Runtime.launch"}, start},
		{"containerd/containerd.log", []string{"runtime/embedded/child.OpenLog"}, start},
		{"containerd/containerd.log.1", []string{"runtime/embedded/child.OpenLog"}, start},
		{"containerd/boot-id", []string{"host/rootdir.Runtime.forgetUnless"}, boot},
		{"cni/net.d/10-deckhand.conflist", []string{"runtime/embedded/cni.Network.Write"}, start},
		{"deckhand.log", []string{"cmd/deckhand/command.openLog"}, commandLog},
		{"deckhand.sock", []string{"agent.localModule"}, commandSocket},
		{"pod-resources/kubelet.sock", []string{"server/podresources.Server.Run"}, sockets},
		{"device-plugins/kubelet.sock", []string{"resources/devices.Manager.serveOnce"}, sockets},
	}
}

// A full disk and a failing disk have the same consequences. The only difference is that the reserve helps on a full
// disk only.
var (
	podRecord = Failure{"running containers, probes, status, stops and restarts",
		"new pods whose manifest sets a UID; state that a pod keeps over a restart of the agent. Records of pods " +
			"that end get the reserve", "the pod's wait and event `FailedSync`"}
	stops = Failure{"`deckhand stop`: it gets the reserve, and holds until the agent ends if that is used up",
		"`deckhand start`", "the command's error"}
	pressureState = Failure{"evictions: they get the reserve",
		"nothing; after a restart of the agent, times below a threshold count again from zero", "the agent's log"}
	reserve = Failure{"all", "a reserve for writes that end pods", "`deckhand node`: the full disk"}
	probe   = Failure{"all", "starts of pods: by this file the agent finds out when a disk can be written again",
		"event `StorageFailed`, the node's condition `Ready`"}
	ledger = Failure{"admission and running pods", "in-place resizes", "the pod's wait, or the agent's log"}

	deviceRecord = Failure{"pods without devices", "containers with devices", "the pod's wait and event"}
	cpuRecord    = Failure{"pods that share CPUs", "containers with CPUs to themselves", "the pod's wait and event"}
	claims       = Failure{"running pods, pods without claims", "pods with claims", "the pod's wait and event"}
	podFiles     = Failure{"running pods, with the old content of volumes", "starts of pods, updates of volumes",
		"the pod's wait and event"}
	lastGood = Failure{"new manifests", "nothing; a manifest that becomes invalid has an older last good version " +
		"after a restart of the agent", "`deckhand node`"}
	lastKnown = Failure{"answers from memory",
		"nothing; after a restart of the agent the newest objects are missing if the API server is away",
		"`deckhand node`"}
	eventFile = Failure{"all, events from memory",
		"nothing; after a restart of the agent the newest events are missing", "the agent's log"}
	imageRecords = Failure{"all", "nothing; the next agent imports archives again, or takes images for new",
		"the agent's log"}
	journal = Failure{"all, the journal in memory",
		"nothing; after a restart of the agent the newest decisions are missing",
		"`deckhand journal`, a metric, and the agent's log"}
	logs = Failure{"containers, rotation by rename", "compression of rotated logs", "the agent's log"}

	pulls        = Failure{"pods whose images are there", "pulls of images", "the pod's wait and event"}
	certificates = Failure{"the certificates that there are, until they expire", "rotation",
		"the agent's log, and a day before the end the event `CertificateExpires`"}
	command = Failure{"all", "the command", "the command's error"}
	start   = Failure{"a running agent; one that only stops pods",
		"the first start of an agent, or one with another configuration", "the start's error"}
	footprint = Failure{"all: it gets the reserve", "the start of an agent, if that is used up", "the start's error"}
	boot      = Failure{"all: a file of the same length is overwritten in place", "nothing", ""}

	commandLog    = Failure{"`deckhand down`, which prints its log", "`deckhand up`", "the command's output"}
	commandSocket = Failure{"pods", "commands; the socket gets the reserve, and is tried again every 2 seconds",
		"the agent's log"}
	sockets = Failure{"pods", "the service; it is tried again", "the agent's log"}
)
