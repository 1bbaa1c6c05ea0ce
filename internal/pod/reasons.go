package pod

// Reason is a reason as the API shows it: why a container waits or has ended, why a pod failed, why a condition has its
// status, or why an event was recorded. Other packages use these constants instead of literals; reasons that the API's
// own packages define (v1.PodReasonDeferred) are used from there. The reference docs/reference/events.md is generated
// from the comments below.
type Reason string

// Reasons of containers that wait, as kubectl and its users know them.
const (
	// ReasonContainerCreating: the image is pulled, the volumes are mounted, or the container is created.
	ReasonContainerCreating Reason = "ContainerCreating"
	// ReasonPodInitializing: init containers come first.
	ReasonPodInitializing Reason = "PodInitializing"
	// ReasonCrashLoopBackOff: the container ended and is started again after a delay, from 10s doubling to 5m.
	ReasonCrashLoopBackOff Reason = "CrashLoopBackOff"
	// ReasonRestartingAllContainers: a restart rule has all containers of the pod restarted.
	ReasonRestartingAllContainers Reason = "RestartingAllContainers"
	// ReasonErrImagePull: the image couldn't be pulled, and is tried again.
	ReasonErrImagePull Reason = "ErrImagePull"
	// ReasonImagePullBackOff: the pull of the image failed, and waits for its next try.
	ReasonImagePullBackOff Reason = "ImagePullBackOff"
	// ReasonErrImageNeverPull: the pod may not use an image that is on the node, or there is none, and imagePullPolicy
	// is Never.
	ReasonErrImageNeverPull Reason = "ErrImageNeverPull"
	// ReasonImageInspectError: the runtime doesn't say whether it has the image.
	ReasonImageInspectError Reason = "ImageInspectError"
	// ReasonInvalidImageName: the image's name can't be one.
	ReasonInvalidImageName Reason = "InvalidImageName"
	// ReasonCreateContainerConfigError: something that the container refers to is missing or can't be used.
	ReasonCreateContainerConfigError Reason = "CreateContainerConfigError"
	// ReasonCreateContainerError: the runtime refused to create the container.
	ReasonCreateContainerError Reason = "CreateContainerError"
	// ReasonRunContainerError: the container was created, and couldn't be started.
	ReasonRunContainerError Reason = "RunContainerError"
	// ReasonPostStartHookError: the postStart hook failed, so the container is stopped.
	ReasonPostStartHookError Reason = "PostStartHookError"
	// ReasonKillContainerError: the container couldn't be stopped or removed, and is tried again.
	ReasonKillContainerError Reason = "KillContainerError"
)

// Reasons of containers that have ended.
const (
	// ReasonCompleted: it ended with exit code 0.
	ReasonCompleted Reason = "Completed"
	// ReasonError: it ended with another exit code.
	ReasonError Reason = "Error"
	// ReasonOOMKilled: the kernel killed it, or one of its processes, as it went beyond its memory limit.
	ReasonOOMKilled Reason = "OOMKilled"
	// ReasonStartError: it never ran; this one is containerd's.
	ReasonStartError Reason = "StartError"
	// ReasonContainerStatusUnknown: it is gone from the runtime, and nobody saw how it ended.
	ReasonContainerStatusUnknown Reason = "ContainerStatusUnknown"
)

// Reasons of pods that failed.
const (
	// ReasonEvicted: it kept more on the node's disk than its limits allow; or the node was short of memory, disk space
	// or process IDs, and ended the pod or didn't admit it.
	ReasonEvicted Reason = "Evicted"
	// ReasonDeadlineExceeded: it ran for longer than activeDeadlineSeconds.
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	// ReasonAppArmor: it asks for an AppArmor profile, and the host has no AppArmor.
	ReasonAppArmor Reason = "AppArmor"
	// ReasonFeatureUnsupported: it asks for a feature that is off here.
	ReasonFeatureUnsupported Reason = "PodFeatureUnsupported"
	// ReasonNodeAffinity: its nodeSelector or required node affinity doesn't match the node's labels.
	ReasonNodeAffinity Reason = "NodeAffinity"
	// ReasonNodeName: its nodeName is another node's.
	ReasonNodeName Reason = "NodeName"
	// ReasonNodePorts: another pod has its host port.
	ReasonNodePorts Reason = "NodePorts"
	// ReasonOS: it is for another operating system.
	ReasonOS Reason = "PodOSNotSupported"
	// ReasonOSLabel: its nodeSelector names another operating system.
	ReasonOSLabel Reason = "PodOSSelectorNodeLabelDoesNotMatch"
	// ReasonOutOf: it requests more than the node has left; the resource's name follows (OutOfcpu, OutOfmemory,
	// OutOfpods).
	ReasonOutOf Reason = "OutOf"
	// ReasonPodConflict: another pod of this node has its name or UID.
	ReasonPodConflict Reason = "PodConflict"
	// ReasonInvalidPod: no node could run what the API server has.
	ReasonInvalidPod Reason = "InvalidPod"
	// ReasonPreempting: it was ended to make room for a critical pod of higher priority.
	ReasonPreempting Reason = "Preempting"
	// ReasonTerminated: its node was shutting down.
	ReasonTerminated Reason = "Terminated"
	// ReasonSupplementalGroupsPolicyNotSupported: it asks for supplementalGroupsPolicy Strict, which the runtime
	// doesn't know.
	ReasonSupplementalGroupsPolicyNotSupported Reason = "SupplementalGroupsPolicyNotSupported"
	// ReasonSysctlForbidden: it sets a sysctl that isn't safe, and allowedUnsafeSysctls doesn't name that.
	ReasonSysctlForbidden Reason = "SysctlForbidden"
	// ReasonUnexpectedAdmissionError: a device plugin refused it its devices, or wasn't there for 5m.
	ReasonUnexpectedAdmissionError Reason = "UnexpectedAdmissionError"
	// ReasonTaintToleration: it doesn't tolerate a taint of the node with the effect NoExecute.
	ReasonTaintToleration Reason = "TaintToleration"
)

// Reasons of conditions of pods.
const (
	// ReasonContainersNotInitialized: init containers haven't succeeded yet.
	ReasonContainersNotInitialized Reason = "ContainersNotInitialized"
	// ReasonContainersNotReady: containers aren't ready; the message names them.
	ReasonContainersNotReady Reason = "ContainersNotReady"
	// ReasonPodCompleted: the pod has succeeded.
	ReasonPodCompleted Reason = "PodCompleted"
	// ReasonPodFailed: the pod has failed.
	ReasonPodFailed Reason = "PodFailed"
	// ReasonReadinessGatesNotReady: the condition of a readiness gate isn't true.
	ReasonReadinessGatesNotReady Reason = "ReadinessGatesNotReady"
	// ReasonRestartAllContainersStarted: a restart rule has all containers of the pod restarted.
	ReasonRestartAllContainersStarted Reason = "RestartAllContainersStarted"
)

// Reasons of conditions of the node.
const (
	// ReasonKubeletHasDiskPressure: the node is short of disk space or inodes.
	ReasonKubeletHasDiskPressure Reason = "KubeletHasDiskPressure"
	// ReasonKubeletHasInsufficientMemory: the node is short of memory.
	ReasonKubeletHasInsufficientMemory Reason = "KubeletHasInsufficientMemory"
	// ReasonKubeletHasInsufficientPID: the node is short of process IDs.
	ReasonKubeletHasInsufficientPID Reason = "KubeletHasInsufficientPID"
	// ReasonKubeletHasNoDiskPressure: the node has enough disk space and inodes.
	ReasonKubeletHasNoDiskPressure Reason = "KubeletHasNoDiskPressure"
	// ReasonKubeletHasSufficientMemory: the node has enough memory.
	ReasonKubeletHasSufficientMemory Reason = "KubeletHasSufficientMemory"
	// ReasonKubeletHasSufficientPID: the node has enough process IDs.
	ReasonKubeletHasSufficientPID Reason = "KubeletHasSufficientPID"
	// ReasonKubeletNotReady: the node can't run pods; the message says why.
	ReasonKubeletNotReady Reason = "KubeletNotReady"
	// ReasonKubeletReady: the node can run pods.
	ReasonKubeletReady Reason = "KubeletReady"
)

// Reasons of events about pods. Of a failed action most are also why the pod waits.
const (
	// ReasonAlreadyMountedVolume: files of a PersistentVolume keep the group that another pod's fsGroup gave them.
	ReasonAlreadyMountedVolume Reason = "AlreadyMountedVolume"
	// ReasonBackOff: a container is started again, or an image pulled again, after a delay.
	ReasonBackOff Reason = "BackOff"
	// ReasonCreated: a container was created.
	ReasonCreated Reason = "Created"
	// ReasonDNSConfigForming: the pod has more name servers or search domains than a resolver takes; the rest is left
	// out.
	ReasonDNSConfigForming Reason = "DNSConfigForming"
	// ReasonFailed: an image couldn't be pulled, or a container couldn't be created or started.
	ReasonFailed Reason = "Failed"
	// ReasonFailedCreatePodContainer: the pod's cgroup couldn't be made.
	ReasonFailedCreatePodContainer Reason = "FailedCreatePodContainer"
	// ReasonFailedCreatePodSandBox: the runtime couldn't make the pod's sandbox, which includes its network.
	ReasonFailedCreatePodSandBox Reason = "FailedCreatePodSandBox"
	// ReasonFailedCredentialProvider: a credential provider plugin gave no credentials for an image.
	ReasonFailedCredentialProvider Reason = "FailedCredentialProvider"
	// ReasonFailedKillPod: something of the pod couldn't be stopped or removed, and is tried again.
	ReasonFailedKillPod Reason = "FailedKillPod"
	// ReasonFailedMapVolume: a volume is a block device, which isn't supported yet.
	ReasonFailedMapVolume Reason = "FailedMapVolume"
	// ReasonFailedMount: a volume couldn't be mounted or brought up to date.
	ReasonFailedMount Reason = "FailedMount"
	// ReasonFailedPostStartHook: a postStart hook failed.
	ReasonFailedPostStartHook Reason = "FailedPostStartHook"
	// ReasonFailedPrepareDynamicResources: it uses ResourceClaims, which this version doesn't prepare.
	ReasonFailedPrepareDynamicResources Reason = "FailedPrepareDynamicResources"
	// ReasonFailedPreStopHook: a preStop hook failed, or used up the grace period.
	ReasonFailedPreStopHook Reason = "FailedPreStopHook"
	// ReasonFailedSync: the pod's checkpoint couldn't be written.
	ReasonFailedSync Reason = "FailedSync"
	// ReasonFailedToRetrieveImagePullSecret: a pull secret isn't there; the pull is tried without.
	ReasonFailedToRetrieveImagePullSecret Reason = "FailedToRetrieveImagePullSecret"
	// ReasonFailedUnmount: a volume couldn't be taken down, and is tried again.
	ReasonFailedUnmount Reason = "FailedUnmount"
	// ReasonHostPortConflict: a program of the host, or of a pod that doesn't name it, listens on a host port of the
	// container.
	ReasonHostPortConflict Reason = "HostPortConflict"
	// ReasonInspectFailed: the image's name can't be one, or the runtime doesn't say whether it has the image.
	ReasonInspectFailed Reason = "InspectFailed"
	// ReasonInvalidEnvironmentVariableNames: keys of a ConfigMap or Secret can't be names of variables; they are left
	// out.
	ReasonInvalidEnvironmentVariableNames Reason = "InvalidEnvironmentVariableNames"
	// ReasonInvalidImagePullSecret: a pull secret can't be used as it is.
	ReasonInvalidImagePullSecret Reason = "InvalidImagePullSecret"
	// ReasonKillPodSandboxError: the pod's sandbox couldn't be stopped or removed, and is tried again.
	ReasonKillPodSandboxError Reason = "KillPodSandboxError"
	// ReasonKilling: a container is being stopped; the message says why, if it isn't with its pod.
	ReasonKilling Reason = "Killing"
	// ReasonMissingClusterDNS: the pod asks for the cluster's DNS, and clusterDNS isn't set: it gets the node's.
	ReasonMissingClusterDNS Reason = "MissingClusterDNS"
	// ReasonProbeWarning: a probe succeeded with a warning, such as a redirection to another host.
	ReasonProbeWarning Reason = "ProbeWarning"
	// ReasonPulled: an image was pulled, or is there already.
	ReasonPulled Reason = "Pulled"
	// ReasonPulling: an image is being pulled.
	ReasonPulling Reason = "Pulling"
	// ReasonResizeCompleted: all containers have the CPU and memory that the pod asks for.
	ReasonResizeCompleted Reason = "ResizeCompleted"
	// ReasonResizeDeferred: a resize waits until the node has room for it.
	ReasonResizeDeferred Reason = "ResizeDeferred"
	// ReasonResizeError: a resize failed, and is tried again.
	ReasonResizeError Reason = "ResizeError"
	// ReasonResizeInfeasible: a resize asks for more than the node has in all.
	ReasonResizeInfeasible Reason = "ResizeInfeasible"
	// ReasonResizeStarted: a resize was admitted, and is in progress.
	ReasonResizeStarted Reason = "ResizeStarted"
	// ReasonSandboxChanged: the pod's sandbox is gone, and another one is made.
	ReasonSandboxChanged Reason = "SandboxChanged"
	// ReasonStarted: a container was started.
	ReasonStarted Reason = "Started"
	// ReasonUnhealthy: a probe failed.
	ReasonUnhealthy Reason = "Unhealthy"
	// ReasonUnsupported: the pod has fields that this version doesn't act on; the message names them.
	ReasonUnsupported Reason = "Unsupported"
	// ReasonVolumeIsRetained: a PersistentVolume's reclaim policy isn't Retain, but nothing deletes data here.
	ReasonVolumeIsRetained Reason = "VolumeIsRetained"
	// ReasonVolumePermissionChangeInProgress: it takes long to give a volume's files to the pod's fsGroup.
	ReasonVolumePermissionChangeInProgress Reason = "VolumePermissionChangeInProgress"
)

// Reasons of events about the node, its images and its manifests.
const (
	// ReasonCheckLimitsForResolvConf: the node's resolv.conf has more than pods' resolvers take.
	ReasonCheckLimitsForResolvConf Reason = "CheckLimitsForResolvConf"
	// ReasonClockStepped: somebody, perhaps NTP, has set the machine's clock by 2 s or more.
	ReasonClockStepped Reason = "ClockStepped"
	// ReasonConfigurationNotReloaded: the configuration was read again and can't be used, or needs a restart of the
	// agent.
	ReasonConfigurationNotReloaded Reason = "ConfigurationNotReloaded"
	// ReasonConfigurationReloaded: the configuration was read again and is in force.
	ReasonConfigurationReloaded Reason = "ConfigurationReloaded"
	// ReasonFreeDiskSpaceFailed: image collection couldn't free as much as it should.
	ReasonFreeDiskSpaceFailed Reason = "FreeDiskSpaceFailed"
	// ReasonImageGCFailed: image collection failed.
	ReasonImageGCFailed Reason = "ImageGCFailed"
	// ReasonImagesCollected: images that nothing uses were removed.
	ReasonImagesCollected Reason = "ImagesCollected"
	// ReasonInvalidDiskCapacity: the image file system says that it has no size.
	ReasonInvalidDiskCapacity Reason = "InvalidDiskCapacity"
	// ReasonInvalidManifest: a manifest can't be used; the message says what is wrong with it.
	ReasonInvalidManifest Reason = "InvalidManifest"
	// ReasonNodeHasDiskPressure: the node became short of disk space or inodes. It gets no new pods, and may evict
	// some.
	ReasonNodeHasDiskPressure Reason = "NodeHasDiskPressure"
	// ReasonNodeHasInsufficientMemory: the node became short of memory. It gets no new pods of the QoS class
	// BestEffort, and may evict pods.
	ReasonNodeHasInsufficientMemory Reason = "NodeHasInsufficientMemory"
	// ReasonNodeHasInsufficientPID: the node became short of process IDs. It gets no new pods, and may evict some.
	ReasonNodeHasInsufficientPID Reason = "NodeHasInsufficientPID"
	// ReasonNodeHasNoDiskPressure: the node has enough disk space and inodes again.
	ReasonNodeHasNoDiskPressure Reason = "NodeHasNoDiskPressure"
	// ReasonNodeHasSufficientMemory: the node has enough memory again.
	ReasonNodeHasSufficientMemory Reason = "NodeHasSufficientMemory"
	// ReasonNodeHasSufficientPID: the node has enough process IDs again.
	ReasonNodeHasSufficientPID Reason = "NodeHasSufficientPID"
	// ReasonNodeNotReady: the node can't run pods any more; its condition Ready says why.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonNodeNotSchedulable: somebody has cordoned the node: it gets no new pods.
	ReasonNodeNotSchedulable Reason = "NodeNotSchedulable"
	// ReasonNodeReady: the node can run pods again.
	ReasonNodeReady Reason = "NodeReady"
	// ReasonNodeSchedulable: the node isn't cordoned any more.
	ReasonNodeSchedulable Reason = "NodeSchedulable"
	// ReasonPodLogsRemoved: logs of pods that are gone were removed.
	ReasonPodLogsRemoved Reason = "PodLogsRemoved"
	// ReasonPodNetworkRestored: another program, such as a restarted firewall, removed parts of the embedded runtime's
	// network; they were made again at once.
	ReasonPodNetworkRestored Reason = "PodNetworkRestored"
	// ReasonPodsHeld: the API server has none of the node's pods any more, and another object of the node, as when its
	// data was lost: they run on for 5 minutes before that is believed.
	ReasonPodsHeld Reason = "PodsHeld"
	// ReasonReadableSecret: others than its owner may read a manifest with a Secret.
	ReasonReadableSecret Reason = "ReadableSecret"
	// ReasonCertificateExpires: a certificate of the node ends within a day, or in the last twentieth of a shorter
	// life, and can't be renewed.
	ReasonCertificateExpires Reason = "CertificateExpires"
	// ReasonRebooted: the machine has another boot ID than when its node's status was sent last.
	ReasonRebooted Reason = "Rebooted"
	// ReasonStarting: an agent of a cluster has started.
	ReasonStarting Reason = "Starting"
	// ReasonStorageFailed: writes to the disk of the root directory fail although there is room, as when it became
	// read-only, and no pod starts; or they don't return, and pods wait whose state has to be on disk. Running pods
	// run on.
	ReasonStorageFailed Reason = "StorageFailed"
	// ReasonStorageFull: a write failed because a disk of the node is full, has no free inode, or a quota is used up.
	// Running pods run on; others wait for room.
	ReasonStorageFull Reason = "StorageFull"
	// ReasonSystemOOM: the machine itself was out of memory, and the kernel killed a process, of a pod or of the host.
	ReasonSystemOOM Reason = "SystemOOM"
	// ReasonEvictionThresholdMet: the node runs short of a resource; something unused is removed, or a pod is evicted.
	ReasonEvictionThresholdMet Reason = "EvictionThresholdMet"
	// ReasonEvictionFindsNoPod: the node runs short of a resource, and no pod that may be evicted uses enough of it.
	ReasonEvictionFindsNoPod Reason = "EvictionFindsNoPod"
	// ReasonUnreachableNameservers: the node's resolv.conf names no server that pods can reach.
	ReasonUnreachableNameservers Reason = "UnreachableNameservers"
)
