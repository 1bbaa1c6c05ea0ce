package pod

// Reason is a reason as the API shows it: why a container waits or has ended, why a pod failed, why a condition has its
// status, or why an event was recorded. Other packages use these constants instead of literals; reasons that the API's
// own packages define (v1.PodReasonDeferred) are used from there. The reference docs/reference/events.md is generated
// from the comments below.
type Reason string

// Reasons of containers that wait, as kubectl shows them.
const (
	// ReasonContainerCreating: the image is being pulled, the volumes are being mounted, or the container is being
	// created.
	ReasonContainerCreating Reason = "ContainerCreating"
	// ReasonPodInitializing: the container waits for the pod's init containers.
	ReasonPodInitializing Reason = "PodInitializing"
	// ReasonCrashLoopBackOff: the container ended, and is restarted after a delay that doubles from 10s up to 5m.
	ReasonCrashLoopBackOff Reason = "CrashLoopBackOff"
	// ReasonRestartingAllContainers: all containers of the pod are being restarted because of a restart rule.
	ReasonRestartingAllContainers Reason = "RestartingAllContainers"
	// ReasonErrImagePull: the image couldn't be pulled; the pull is retried.
	ReasonErrImagePull Reason = "ErrImagePull"
	// ReasonImagePullBackOff: the pull of the image failed, and is retried after a delay.
	ReasonImagePullBackOff Reason = "ImagePullBackOff"
	// ReasonErrImageNeverPull: the image isn't on the node, or was pulled with credentials that the pod doesn't have,
	// and imagePullPolicy is Never.
	ReasonErrImageNeverPull Reason = "ErrImageNeverPull"
	// ReasonImageInspectError: the runtime couldn't report whether it has the image.
	ReasonImageInspectError Reason = "ImageInspectError"
	// ReasonInvalidImageName: the image's name is invalid.
	ReasonInvalidImageName Reason = "InvalidImageName"
	// ReasonCreateContainerConfigError: something that the container refers to is missing or can't be used.
	ReasonCreateContainerConfigError Reason = "CreateContainerConfigError"
	// ReasonCreateContainerError: the runtime refused to create the container.
	ReasonCreateContainerError Reason = "CreateContainerError"
	// ReasonRunContainerError: the container was created, but couldn't be started.
	ReasonRunContainerError Reason = "RunContainerError"
	// ReasonPostStartHookError: the postStart hook failed, so the container is stopped.
	ReasonPostStartHookError Reason = "PostStartHookError"
	// ReasonKillContainerError: the container couldn't be stopped or removed; this is retried.
	ReasonKillContainerError Reason = "KillContainerError"
)

// Reasons of containers that have ended.
const (
	// ReasonCompleted: the container ended with exit code 0.
	ReasonCompleted Reason = "Completed"
	// ReasonError: the container ended with an exit code other than 0.
	ReasonError Reason = "Error"
	// ReasonOOMKilled: the kernel killed the container, or one of its processes, because the container exceeded its
	// memory limit.
	ReasonOOMKilled Reason = "OOMKilled"
	// ReasonStartError: the container never ran. This reason is set by containerd.
	ReasonStartError Reason = "StartError"
	// ReasonContainerStatusUnknown: the container vanished from the runtime before its exit code was read.
	ReasonContainerStatusUnknown Reason = "ContainerStatusUnknown"
)

// Reasons of pods that failed.
const (
	// ReasonEvicted: the pod used more of the node's disk than its limits allow; or the node was short of memory, disk
	// space or process IDs, and ended the pod or didn't admit it.
	ReasonEvicted Reason = "Evicted"
	// ReasonDeadlineExceeded: the pod ran for longer than activeDeadlineSeconds.
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	// ReasonAppArmor: the pod requests an AppArmor profile, but AppArmor isn't enabled on the host.
	ReasonAppArmor Reason = "AppArmor"
	// ReasonFeatureUnsupported: the pod requires a feature that isn't available on this node.
	ReasonFeatureUnsupported Reason = "PodFeatureUnsupported"
	// ReasonNodeAffinity: the pod's nodeSelector or required node affinity doesn't match the node's labels.
	ReasonNodeAffinity Reason = "NodeAffinity"
	// ReasonNodeName: the pod's nodeName is the name of another node.
	ReasonNodeName Reason = "NodeName"
	// ReasonNodePorts: another pod uses a host port of the pod.
	ReasonNodePorts Reason = "NodePorts"
	// ReasonOS: the pod is for another operating system.
	ReasonOS Reason = "PodOSNotSupported"
	// ReasonOSLabel: the pod's nodeSelector names another operating system.
	ReasonOSLabel Reason = "PodOSSelectorNodeLabelDoesNotMatch"
	// ReasonOutOf: the pod requests more of a resource than the node has left; the resource's name follows (OutOfcpu,
	// OutOfmemory, OutOfpods).
	ReasonOutOf Reason = "OutOf"
	// ReasonPodConflict: another pod of this node has the pod's name or UID.
	ReasonPodConflict Reason = "PodConflict"
	// ReasonInvalidPod: the pod, as the API server has it, is invalid: no node could run it.
	ReasonInvalidPod Reason = "InvalidPod"
	// ReasonPreempting: the pod was ended to make room for a critical pod of higher priority.
	ReasonPreempting Reason = "Preempting"
	// ReasonTerminated: the node was shutting down.
	ReasonTerminated Reason = "Terminated"
	// ReasonSupplementalGroupsPolicyNotSupported: the pod requests supplementalGroupsPolicy Strict, which the runtime
	// doesn't support.
	ReasonSupplementalGroupsPolicyNotSupported Reason = "SupplementalGroupsPolicyNotSupported"
	// ReasonSysctlForbidden: the pod sets a sysctl that isn't safe and isn't listed in allowedUnsafeSysctls.
	ReasonSysctlForbidden Reason = "SysctlForbidden"
	// ReasonUnexpectedAdmissionError: a device plugin refused the pod's devices, or didn't register within 5m.
	ReasonUnexpectedAdmissionError Reason = "UnexpectedAdmissionError"
	// ReasonSMTAlignmentError: a container's CPUs can't be whole physical cores (full-pcpus-only).
	ReasonSMTAlignmentError Reason = "SMTAlignmentError"
	// ReasonTaintToleration: the pod doesn't tolerate a taint of the node with the effect NoExecute.
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
	// ReasonRestartAllContainersStarted: all containers of the pod are being restarted because of a restart rule.
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

// Reasons of events about pods. The reason of a failed action is usually also the one for which the pod waits.
const (
	// ReasonAlreadyMountedVolume: the files of a PersistentVolume keep their group, because a pod with another fsGroup,
	// or without one, uses the volume.
	ReasonAlreadyMountedVolume Reason = "AlreadyMountedVolume"
	// ReasonBackOff: a container is restarted, or the pull of an image is retried, after a delay.
	ReasonBackOff Reason = "BackOff"
	// ReasonCreated: a container was created.
	ReasonCreated Reason = "Created"
	// ReasonDNSConfigForming: the pod has more name servers or search domains than resolvers support; the excess ones
	// are omitted.
	ReasonDNSConfigForming Reason = "DNSConfigForming"
	// ReasonFailed: an image couldn't be pulled, or a container couldn't be created or started.
	ReasonFailed Reason = "Failed"
	// ReasonFailedCreatePodContainer: the pod's cgroup couldn't be created.
	ReasonFailedCreatePodContainer Reason = "FailedCreatePodContainer"
	// ReasonFailedCreatePodSandBox: the runtime couldn't create the pod's sandbox, which includes the pod's network.
	ReasonFailedCreatePodSandBox Reason = "FailedCreatePodSandBox"
	// ReasonFailedCredentialProvider: a credential provider plugin failed; the image is pulled with other credentials,
	// if there are any.
	ReasonFailedCredentialProvider Reason = "FailedCredentialProvider"
	// ReasonFailedKillPod: a part of the pod couldn't be stopped or removed; this is retried.
	ReasonFailedKillPod Reason = "FailedKillPod"
	// ReasonFailedMapVolume: a volume is a block device, which isn't supported yet.
	ReasonFailedMapVolume Reason = "FailedMapVolume"
	// ReasonFailedMount: a volume couldn't be mounted or updated.
	ReasonFailedMount Reason = "FailedMount"
	// ReasonFailedPostStartHook: a postStart hook failed.
	ReasonFailedPostStartHook Reason = "FailedPostStartHook"
	// ReasonFailedPrepareDynamicResources: the pod uses ResourceClaims, which this version doesn't support.
	ReasonFailedPrepareDynamicResources Reason = "FailedPrepareDynamicResources"
	// ReasonFailedPreStopHook: a preStop hook failed, or took the whole grace period.
	ReasonFailedPreStopHook Reason = "FailedPreStopHook"
	// ReasonFailedSync: the pod's checkpoint couldn't be written.
	ReasonFailedSync Reason = "FailedSync"
	// ReasonFailedToRetrieveImagePullSecret: a pull secret doesn't exist or can't be read; the pull is tried without
	// it.
	ReasonFailedToRetrieveImagePullSecret Reason = "FailedToRetrieveImagePullSecret"
	// ReasonFailedUnmount: a volume couldn't be unmounted or removed; this is retried.
	ReasonFailedUnmount Reason = "FailedUnmount"
	// ReasonHostPortConflict: a program of the host, or of a pod that doesn't declare the port, listens on a host port
	// of the container.
	ReasonHostPortConflict Reason = "HostPortConflict"
	// ReasonInspectFailed: the image's name is invalid, or the runtime couldn't report whether it has the image.
	ReasonInspectFailed Reason = "InspectFailed"
	// ReasonInvalidEnvironmentVariableNames: keys of a ConfigMap or Secret are invalid as names of environment
	// variables; they are omitted.
	ReasonInvalidEnvironmentVariableNames Reason = "InvalidEnvironmentVariableNames"
	// ReasonInvalidImagePullSecret: a pull secret has invalid content; the message describes the problem.
	ReasonInvalidImagePullSecret Reason = "InvalidImagePullSecret"
	// ReasonKillPodSandboxError: the pod's sandbox couldn't be stopped or removed; this is retried.
	ReasonKillPodSandboxError Reason = "KillPodSandboxError"
	// ReasonKilling: a container is being stopped; the message says why, unless the whole pod is being stopped.
	ReasonKilling Reason = "Killing"
	// ReasonMissingClusterDNS: the pod uses the cluster's DNS, but clusterDNS isn't set: the pod gets the node's DNS
	// instead.
	ReasonMissingClusterDNS Reason = "MissingClusterDNS"
	// ReasonProbeWarning: a probe succeeded with a warning, such as a redirection to another host.
	ReasonProbeWarning Reason = "ProbeWarning"
	// ReasonPulled: an image was pulled, or is already on the node.
	ReasonPulled Reason = "Pulled"
	// ReasonPulling: an image is being pulled.
	ReasonPulling Reason = "Pulling"
	// ReasonResizeCompleted: all containers have the CPU and memory that the pod requests.
	ReasonResizeCompleted Reason = "ResizeCompleted"
	// ReasonResizeDeferred: a resize waits until the node has room for it.
	ReasonResizeDeferred Reason = "ResizeDeferred"
	// ReasonResizeError: a resize failed; it is retried.
	ReasonResizeError Reason = "ResizeError"
	// ReasonResizeInfeasible: a resize requests more than the node has in total.
	ReasonResizeInfeasible Reason = "ResizeInfeasible"
	// ReasonResizeStarted: a resize was admitted, and is in progress.
	ReasonResizeStarted Reason = "ResizeStarted"
	// ReasonSandboxChanged: the pod's sandbox is gone, and a new one is created.
	ReasonSandboxChanged Reason = "SandboxChanged"
	// ReasonStarted: a container was started.
	ReasonStarted Reason = "Started"
	// ReasonUnhealthy: a probe failed.
	ReasonUnhealthy Reason = "Unhealthy"
	// ReasonUnsupported: the pod has fields that this version doesn't act on; the message names them.
	ReasonUnsupported Reason = "Unsupported"
	// ReasonVolumeIsRetained: a PersistentVolume's reclaim policy isn't Retain, but its data is never deleted here.
	ReasonVolumeIsRetained Reason = "VolumeIsRetained"
	// ReasonVolumePermissionChangeInProgress: changing the group of a volume's files to the pod's fsGroup takes long.
	ReasonVolumePermissionChangeInProgress Reason = "VolumePermissionChangeInProgress"
)

// Reasons of events about the node, its images and its manifests.
const (
	// ReasonCheckLimitsForResolvConf: the node's resolv.conf has more entries than pods' resolvers support.
	ReasonCheckLimitsForResolvConf Reason = "CheckLimitsForResolvConf"
	// ReasonClockStepped: the machine's clock was set forward or back by 2 s or more, perhaps by NTP.
	ReasonClockStepped Reason = "ClockStepped"
	// ReasonConfigurationNotReloaded: the configuration was read again, but can't be used, or requires a restart of the
	// agent.
	ReasonConfigurationNotReloaded Reason = "ConfigurationNotReloaded"
	// ReasonConfigurationReloaded: the configuration was read again and is in force.
	ReasonConfigurationReloaded Reason = "ConfigurationReloaded"
	// ReasonFreeDiskSpaceFailed: image collection couldn't free as much disk space as required.
	ReasonFreeDiskSpaceFailed Reason = "FreeDiskSpaceFailed"
	// ReasonImageGCFailed: image collection failed.
	ReasonImageGCFailed Reason = "ImageGCFailed"
	// ReasonImagesCollected: unused images were removed.
	ReasonImagesCollected Reason = "ImagesCollected"
	// ReasonInvalidDiskCapacity: the size of the image file system is reported as zero.
	ReasonInvalidDiskCapacity Reason = "InvalidDiskCapacity"
	// ReasonInvalidManifest: a manifest can't be used; the message says what is wrong with it.
	ReasonInvalidManifest Reason = "InvalidManifest"
	// ReasonNodeHasDiskPressure: the node became short of disk space or inodes. It gets no new pods, and may evict
	// pods.
	ReasonNodeHasDiskPressure Reason = "NodeHasDiskPressure"
	// ReasonNodeHasInsufficientMemory: the node became short of memory. It gets no new pods of the QoS class
	// BestEffort, and may evict pods.
	ReasonNodeHasInsufficientMemory Reason = "NodeHasInsufficientMemory"
	// ReasonNodeHasInsufficientPID: the node became short of process IDs. It gets no new pods, and may evict pods.
	ReasonNodeHasInsufficientPID Reason = "NodeHasInsufficientPID"
	// ReasonNodeHasNoDiskPressure: the node has enough disk space and inodes again.
	ReasonNodeHasNoDiskPressure Reason = "NodeHasNoDiskPressure"
	// ReasonNodeHasSufficientMemory: the node has enough memory again.
	ReasonNodeHasSufficientMemory Reason = "NodeHasSufficientMemory"
	// ReasonNodeHasSufficientPID: the node has enough process IDs again.
	ReasonNodeHasSufficientPID Reason = "NodeHasSufficientPID"
	// ReasonNodeNotReady: the node can't run pods any more; its condition Ready says why.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonNodeNotSchedulable: the node was cordoned: it gets no new pods.
	ReasonNodeNotSchedulable Reason = "NodeNotSchedulable"
	// ReasonNodeReady: the node can run pods again.
	ReasonNodeReady Reason = "NodeReady"
	// ReasonNodeSchedulable: the node isn't cordoned any more.
	ReasonNodeSchedulable Reason = "NodeSchedulable"
	// ReasonPodLogsRemoved: logs of removed pods were deleted.
	ReasonPodLogsRemoved Reason = "PodLogsRemoved"
	// ReasonPodNetworkRestored: another program, such as a restarted firewall, removed parts of the embedded runtime's
	// network; they were restored at once.
	ReasonPodNetworkRestored Reason = "PodNetworkRestored"
	// ReasonPodsHeld: the API server doesn't have any of the node's pods any more, and the node's object is missing or
	// another one, as after a loss of the API server's data. The pods run on for 5 minutes before they are ended.
	ReasonPodsHeld Reason = "PodsHeld"
	// ReasonReadableSecret: a manifest with a Secret can be read by users other than its owner.
	ReasonReadableSecret Reason = "ReadableSecret"
	// ReasonCertificateExpires: a certificate of the node can't be renewed, and expires within a day, or within a
	// twentieth of its lifetime if that is shorter.
	ReasonCertificateExpires Reason = "CertificateExpires"
	// ReasonRebooted: the machine's boot ID has changed since the node's status was last sent.
	ReasonRebooted Reason = "Rebooted"
	// ReasonStarting: an agent that belongs to a cluster has started.
	ReasonStarting Reason = "Starting"
	// ReasonStorageFailed: writes to the disk of the root directory fail although the disk isn't full, for example
	// because it became read-only: no pod starts. Or writes don't return: pods wait if their state has to be on disk.
	// Running pods run on.
	ReasonStorageFailed Reason = "StorageFailed"
	// ReasonResourceStateReplanned: the CPUs that containers have to themselves differ from the record of earlier
	// agents; the message names the difference and its consequence.
	ReasonResourceStateReplanned Reason = "ResourceStateReplanned"
	// ReasonStorageFull: a write failed because a disk of the node is full, has no free inode, or a quota is used up.
	// Running pods run on; other pods wait for free space.
	ReasonStorageFull Reason = "StorageFull"
	// ReasonSystemOOM: the machine as a whole was out of memory, and the kernel killed a process of a pod or of the
	// host.
	ReasonSystemOOM Reason = "SystemOOM"
	// ReasonEvictionThresholdMet: the node is short of a resource; unused containers or images are removed, or a pod is
	// evicted.
	ReasonEvictionThresholdMet Reason = "EvictionThresholdMet"
	// ReasonEvictionFindsNoPod: the node is short of a resource, but no pod that may be evicted uses enough of it.
	ReasonEvictionFindsNoPod Reason = "EvictionFindsNoPod"
	// ReasonUnreachableNameservers: the node's resolv.conf names no name server that pods can reach.
	ReasonUnreachableNameservers Reason = "UnreachableNameservers"
)
