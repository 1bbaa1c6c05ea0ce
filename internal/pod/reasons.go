package pod

// Reason is a reason as the API shows it: why a container waits or has ended, why a pod
// failed, why a condition is as it is, what an event is about. Nobody outside this package
// writes one as text; those that the API's own packages define (v1.PodReasonDeferred) are
// taken from there.
type Reason string

// Reasons of containers that wait, as kubectl and its users know them.
const (
	ReasonContainerCreating          Reason = "ContainerCreating"
	ReasonPodInitializing            Reason = "PodInitializing"
	ReasonCrashLoopBackOff           Reason = "CrashLoopBackOff"
	ReasonRestartingAllContainers    Reason = "RestartingAllContainers"
	ReasonErrImagePull               Reason = "ErrImagePull"
	ReasonImagePullBackOff           Reason = "ImagePullBackOff"
	ReasonErrImageNeverPull          Reason = "ErrImageNeverPull"
	ReasonImageInspectError          Reason = "ImageInspectError"
	ReasonInvalidImageName           Reason = "InvalidImageName"
	ReasonCreateContainerConfigError Reason = "CreateContainerConfigError"
	ReasonCreateContainerError       Reason = "CreateContainerError"
	ReasonRunContainerError          Reason = "RunContainerError"
	ReasonPostStartHookError         Reason = "PostStartHookError"
	ReasonKillContainerError         Reason = "KillContainerError"
)

// Reasons of containers that have ended.
const (
	ReasonCompleted              Reason = "Completed"
	ReasonError                  Reason = "Error"
	ReasonOOMKilled              Reason = "OOMKilled"
	ReasonStartError             Reason = "StartError" // containerd's: it never ran
	ReasonContainerStatusUnknown Reason = "ContainerStatusUnknown"
)

// Reasons of pods that failed.
const (
	ReasonEvicted            Reason = "Evicted"
	ReasonDeadlineExceeded   Reason = "DeadlineExceeded"
	ReasonAppArmor           Reason = "AppArmor"
	ReasonFeatureUnsupported Reason = "PodFeatureUnsupported"
	ReasonNodeAffinity       Reason = "NodeAffinity"
	ReasonNodePorts          Reason = "NodePorts"
	ReasonOS                 Reason = "PodOSNotSupported"
	ReasonOSLabel            Reason = "PodOSSelectorNodeLabelDoesNotMatch"
	// ReasonOutOf is followed by the name of a resource: OutOfcpu.
	ReasonOutOf Reason = "OutOf"
	// ReasonPreempting is of a pod that ends to make room for one of higher priority.
	ReasonPreempting                           Reason = "Preempting"
	ReasonSupplementalGroupsPolicyNotSupported Reason = "SupplementalGroupsPolicyNotSupported"
	ReasonSysctlForbidden                      Reason = "SysctlForbidden"
)

// Reasons of conditions.
const (
	ReasonContainersNotInitialized    Reason = "ContainersNotInitialized"
	ReasonContainersNotReady          Reason = "ContainersNotReady"
	ReasonPodCompleted                Reason = "PodCompleted"
	ReasonPodFailed                   Reason = "PodFailed"
	ReasonReadinessGatesNotReady      Reason = "ReadinessGatesNotReady"
	ReasonRestartAllContainersStarted Reason = "RestartAllContainersStarted"
)

// Reasons of events about pods. Of a failed action most are also why the pod waits.
const (
	ReasonAlreadyMountedVolume             Reason = "AlreadyMountedVolume"
	ReasonBackOff                          Reason = "BackOff"
	ReasonCreated                          Reason = "Created"
	ReasonDNSConfigForming                 Reason = "DNSConfigForming"
	ReasonFailed                           Reason = "Failed"
	ReasonFailedCreatePodContainer         Reason = "FailedCreatePodContainer"
	ReasonFailedCreatePodSandBox           Reason = "FailedCreatePodSandBox"
	ReasonFailedCredentialProvider         Reason = "FailedCredentialProvider"
	ReasonFailedKillPod                    Reason = "FailedKillPod"
	ReasonFailedMapVolume                  Reason = "FailedMapVolume"
	ReasonFailedMount                      Reason = "FailedMount"
	ReasonFailedPostStartHook              Reason = "FailedPostStartHook"
	ReasonFailedPreStopHook                Reason = "FailedPreStopHook"
	ReasonFailedSync                       Reason = "FailedSync"
	ReasonFailedToRetrieveImagePullSecret  Reason = "FailedToRetrieveImagePullSecret"
	ReasonFailedUnmount                    Reason = "FailedUnmount"
	ReasonInspectFailed                    Reason = "InspectFailed"
	ReasonInvalidEnvironmentVariableNames  Reason = "InvalidEnvironmentVariableNames"
	ReasonInvalidImagePullSecret           Reason = "InvalidImagePullSecret"
	ReasonKillPodSandboxError              Reason = "KillPodSandboxError"
	ReasonKilling                          Reason = "Killing"
	ReasonMissingClusterDNS                Reason = "MissingClusterDNS"
	ReasonProbeWarning                     Reason = "ProbeWarning"
	ReasonPulled                           Reason = "Pulled"
	ReasonPulling                          Reason = "Pulling"
	ReasonResizeCompleted                  Reason = "ResizeCompleted"
	ReasonResizeDeferred                   Reason = "ResizeDeferred"
	ReasonResizeError                      Reason = "ResizeError"
	ReasonResizeInfeasible                 Reason = "ResizeInfeasible"
	ReasonResizeStarted                    Reason = "ResizeStarted"
	ReasonSandboxChanged                   Reason = "SandboxChanged"
	ReasonStarted                          Reason = "Started"
	ReasonUnhealthy                        Reason = "Unhealthy"
	ReasonUnsupported                      Reason = "Unsupported"
	ReasonVolumeIsRetained                 Reason = "VolumeIsRetained"
	ReasonVolumePermissionChangeInProgress Reason = "VolumePermissionChangeInProgress"
)

// Reasons of events about the node, its images and its manifests.
const (
	ReasonCheckLimitsForResolvConf Reason = "CheckLimitsForResolvConf"
	ReasonConfigurationNotReloaded Reason = "ConfigurationNotReloaded"
	ReasonConfigurationReloaded    Reason = "ConfigurationReloaded"
	ReasonFreeDiskSpaceFailed      Reason = "FreeDiskSpaceFailed"
	ReasonImageGCFailed            Reason = "ImageGCFailed"
	ReasonImagesCollected          Reason = "ImagesCollected"
	ReasonInvalidDiskCapacity      Reason = "InvalidDiskCapacity"
	ReasonInvalidManifest          Reason = "InvalidManifest"
	ReasonPodLogsRemoved           Reason = "PodLogsRemoved"
	ReasonReadableSecret           Reason = "ReadableSecret"
	ReasonUnreachableNameservers   Reason = "UnreachableNameservers"
)
