package gates

import "slices"

// effectGroup is a group of gates with the same effect in this build.
type effectGroup struct {
	effect Effect
	acts   string
	names  string
}

// effects returns the effect of each gate in this build.
func effects() []effectGroup {
	return slices.Concat([]effectGroup{
		{Switched, "all alpha gates that aren't given themselves", AllAlpha},
		{Switched, "all beta gates that aren't given themselves", AllBeta},
		{Switched, "containers may be written into archives over /checkpoint", ContainerCheckpoint},
		{Switched, "containers with CPUs to themselves have no CPU limit", DisableCPUQuotaWithExclusiveCPUs},
		{Switched, "cpuManagerPolicyOptions may have alpha options", "CPUManagerPolicyAlphaOptions"},
		{Switched, "cpuManagerPolicyOptions may have beta options", "CPUManagerPolicyBetaOptions"},
		{Switched, "serverTLSBootstrap may be set", "RotateKubeletServerCertificate"},
		{Switched, "protection and throttling of memory on cgroup v2", MemoryQoS},
		{Switched, "memory that is kept from pods of lower QoS classes (qosReserved)", QOSReserved},
		{Switched, "in a cluster, static pods that refer to objects of the API are refused; alone, manifests define " +
			"those as well", PreventStaticPodAPIReferences},
		{Switched, "containers that crash are restarted after 1s, doubling to 60s, instead of 10s to 300s",
			ReduceDefaultCrashLoopBackOffDecay},
		{Switched, "statuses of pods say which of their devices are healthy", ResourceHealthStatus},
	}, always(), never(), elsewhere())
}

// always returns gates whose texts complete "always on in this build:".
func always() []effectGroup {
	return []effectGroup{
		{AlwaysOn, "/flagz is served", "ComponentFlagz"},
		{AlwaysOn, "/statusz is served", "ComponentStatusz"},
		{AlwaysOn, "containers may have restart policies and rules of their own", "ContainerRestartRules"},
		{AlwaysOn, "containers may name the signal that stops them", "ContainerStopSignals"},
		{AlwaysOn, "log lines name the object that they are about", "ContextualLogging"},
		{AlwaysOn, "cpuCFSQuotaPeriod counts", "CustomCPUCFSQuotaPeriod"},
		{AlwaysOn, "cpuManagerPolicyOptions counts", "CPUManagerPolicyOptions"},
		{AlwaysOn, "the node object names no version of kube-proxy", "DisableNodeKubeProxyVersion"},
		{AlwaysOn, "environment variables may come from files that containers write", "EnvFiles"},
		{AlwaysOn, "the runtime's events are listened to, if it has any", "EventedPLEG"},
		{AlwaysOn, "exec probes end at their timeout", "ExecProbeTimeout"},
		{AlwaysOn, "pods may set their host name as a whole", "HostnameOverride"},
		{AlwaysOn, "streams may use WebSocket version 5, and port-forward a WebSocket tunnel",
			"ExtendWebSocketsToKubelet"},
		{AlwaysOn, "imageMaximumGCAge counts", "ImageMaximumGCAge"},
		{AlwaysOn, "volumes may be images", "ImageVolume"},
		{AlwaysOn, "pods are resized in place", "InPlacePodVerticalScaling InPlacePodLevelResourcesVerticalScaling"},
		{AlwaysOn, "crashLoopBackOff.maxContainerRestartPeriod counts", "KubeletCrashLoopBackOffMax"},
		{AlwaysOn, "imagePullCredentialsVerificationPolicy counts", "KubeletEnsureSecretPulledImages"},
		{AlwaysOn, "tracing counts", "KubeletTracing"},
		{AlwaysOn, "the pod resources API also returns a single pod", "KubeletPodResourcesGet"},
		{AlwaysOn, "the pod resources API lists no pods that have ended", "KubeletPodResourcesListUseActivePods"},
		{AlwaysOn, "statistics include the pressure stall information (PSI) of CPU, memory and disk, if the kernel " +
			"has it for control groups", "KubeletPSI"},
		{AlwaysOn, "permission for nodes/pods, nodes/healthz or nodes/configz is enough for these endpoints",
			"KubeletFineGrainedAuthz"},
		{AlwaysOn, "writable layers of containers don't count as disk usage of images", "KubeletSeparateDiskGC"},
		{AlwaysOn, "project quotas measure what pods with user namespaces use on disk, where the file system has them",
			"LocalStorageCapacityIsolationFSQuotaMonitoring"},
		{AlwaysOn, "the log can be written as JSON", "LoggingBetaOptions"},
		{AlwaysOn, "the node's status declares the features that this build implements", "NodeDeclaredFeatures"},
		{AlwaysOn, "enableSystemLogQuery counts", "NodeLogQuery"},
		{AlwaysOn, "containers may use swap by memorySwap", "NodeSwap"},
		{AlwaysOn, "the state of a pod is updated right after a call to the runtime", "PLEGOnDemandRelist"},
		{AlwaysOn, "pods may have resources as a whole", "PodLevelResources"},
		{AlwaysOn, "hooks may sleep", "PodLifecycleSleepAction PodLifecycleSleepActionAllowZero"},
		{AlwaysOn, "logs of standard output or standard error can be read alone", "PodLogsQuerySplitStreams"},
		{AlwaysOn, "the status says which generation of the pod it is about", "PodObservedGenerationTracking"},
		{AlwaysOn, "the status has the condition PodReadyToStartContainers", "PodReadyToStartContainersCondition"},
		{AlwaysOn, "containers may set procMount: Unmasked", "ProcMountType"},
		{AlwaysOn, "mounts may be read-only to their depths", "RecursiveReadOnlyMounts"},
		{AlwaysOn, "a changed authentication.x509.clientCAFile counts at once", "ReloadKubeletClientCAFile"},
		{AlwaysOn, "a changed tlsCertFile counts at once", "ReloadKubeletServerCertificateFile"},
		{AlwaysOn, "search domains may have underscores", "RelaxedDNSSearchValidation"},
		{AlwaysOn, "environment variables may have almost any name", "RelaxedEnvironmentVariableValidation"},
		{AlwaysOn, "services may have names that begin with a digit", "RelaxedServiceNameValidation"},
		{AlwaysOn, "the exit of a container may restart all containers of its pod",
			"RestartAllContainersOnContainerExits"},
		{AlwaysOn, "init containers may keep running as sidecars", "SidecarContainers"},
		{AlwaysOn, "pods may choose how supplemental groups are found", "SupplementalGroupsPolicy"},
		{AlwaysOn, "its log can be split between standard output and standard error", "LoggingAlphaOptions"},
		{AlwaysOn, "the runtime is asked for its cgroup driver", "KubeletCgroupDriverFromCRI"},
		{AlwaysOn, "systemd's watchdog is notified if the unit has one", "SystemdWatchdog"},
		{AlwaysOn, "tolerations may compare numbers", "TaintTolerationComparisonOperators"},
		{AlwaysOn, "pods may have users of their own", "UserNamespacesSupport"},
	}
}

// never returns gates whose texts complete "never on in this build:".
func never() []effectGroup {
	return []effectGroup{
		{NeverOn, "it doesn't assign memory to containers", `
			InPlacePodVerticalScalingExclusiveMemory KubeletPodResourcesDynamicResources
			TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions`},
		{NeverOn, "containers keep the CPUs that they have to themselves until they end, and only containers have such", `
			InPlacePodVerticalScalingExclusiveCPUs PodLevelResourceManagers`},
		{NeverOn, "device plugins have no messages about devices", "ResourceHealthStatusMessage"},
		{NeverOn, "it has no dynamic resource allocation", `
			DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints
			DRAExtendedResource DRAListTypeAttributes DRANodeAllocatableResources DRAPartitionableDevices DRAPrioritizedList
			DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus
			DRASchedulerFilterTimeout DRAWorkloadResourceClaims DynamicResourceAllocation`},
		{NeverOn, "it has no volumes that take a driver or an API server", `
			CSIServiceAccountTokenSecrets CSIVolumeHealth ClusterTrustBundleProjection GitRepoVolumeDriver
			MutableCSINodeAllocatableCount PodCertificateRequest RecoverVolumeExpansionFailure`},
		{NeverOn, "it gives volumes no SELinux labels",
			"SELinuxChangePolicy SELinuxMount SELinuxMountReadWriteOncePod"},
		{NeverOn, "the status doesn't say which version of an image a volume is", "ImageVolumeWithDigest"},
		{NeverOn, "it talks to no API server", `
			AtomicFIFO ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC ClientsPreferCBOR InOrderInformers
			InOrderInformersBatchProcess InformerResourceVersion KubeletRegistrationGetOnExistsOnly
			KubeletServiceAccountTokenForCredentialProviders UnlockWhileProcessingFIFO WatchListClient`},
		{NeverOn, "it doesn't delay the node's shutdown",
			"GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority"},
		{NeverOn, "it reads control groups itself, even if the runtime has statistics",
			"PodAndContainerStatsFromCRI"},
		{NeverOn, "a container's grace period isn't overwritten", "AllowOverwriteTerminationGracePeriodSeconds"},
		{NeverOn, "a restart of the agent changes no container's status", "ChangeContainerStatusOnKubeletRestart"},
		{NeverOn, "it streams only lists of the runtime's objects that are too long for one answer",
			"CRIListStreaming"},
		{NeverOn, "init containers that aren't sidecars can't be resized", "InPlacePodVerticalScalingInitContainers"},
		{NeverOn, "it needs to be root on the host itself", "KubeletInUserNamespace"},
		{NeverOn, "its histograms have fixed buckets", "NativeHistograms"},
		{NeverOn, "it has no gRPC service about pods", "PodsAPI"},
		{NeverOn, "images are the same for all runtime handlers", "RuntimeClassInImageCriApi"},
		{NeverOn, "IP addresses in pods may be written as they always could", "StrictIPCIDRValidation"},
		{NeverOn, "pods with users of their own can't share the host's network", "UserNamespacesHostNetworkSupport"},
	}
}

// elsewhere returns gates of other components, which the texts name.
func elsewhere() []effectGroup {
	return []effectGroup{
		{Elsewhere, "the API server", `
			APIResponseCompression APIServerIdentity APIServerTracing APIServingWithRoutine AggregatedDiscoveryRemoveBetaType
			AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests AllowParsingUserUIDFromCertAuth
			AllowServiceExternalIPs AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
			AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors BtreeWatchCache
			CBORServingAndStorage CRDObservedGenerationTracking CRDValidationRatcheting ClearingNominatedNodeNameAfterBinding
			ClusterTrustBundle ConcurrentWatchObjectDecode ConsistentListFromCache ConstrainedImpersonation
			CoordinatedLeaderElection CrossNamespaceVolumeDataSource CustomResourceFieldSelectors DeclarativeValidation
			DeclarativeValidationBeta DeclarativeValidationTakeover DetectCacheInconsistency DisableAllocatorDualWrite
			ExternalServiceAccountTokenSigner KMSv1 ListFromCacheSnapshot ManifestBasedAdmissionControlConfig
			MultiCIDRServiceAllocator MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
			MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy OpenAPIEnums PodTopologyLabelsAdmission
			PortForwardWebsockets RemoteRequestHeaderUID ResilientWatchCacheInitialization RetryGenerateName
			SeparateCacheWatchRPC ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
			ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo ServiceCIDRStatusFieldWiping
			ShardedListAndWatch SizeBasedListCostEstimate StorageNamespaceIndex StorageVersionAPI StorageVersionHash
			StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
			StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
			TokenRequestServiceAccountUIDValidation TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
			UnknownVersionInteroperabilityProxy WatchCacheInitializationPostStartHook WatchList`},
		{Elsewhere, "the controllers", `
			CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
			ControllerManagerReleaseLeaderElectionLockOnExit DeploymentReplicaSetTerminatingReplicas HPAConfigurableTolerance
			HPAScaleToZero JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown
			MaxUnavailableStatefulSet OrderedNamespaceDeletion PersistentVolumeClaimUnusedSinceTime PodDeletionCost
			SeparateTaintEvictionController StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
			StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison
			StorageVersionMigrator VolumeAttributesClass WorkloadWithJob`},
		{Elsewhere, "the scheduler", `
			GangScheduling GenericWorkload MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread
			MatchLabelKeysInPodTopologySpreadSelectorMerge NodeInclusionPolicyInPodTopologySpread
			NominatedNodeNameForExpectation OpportunisticBatching PodSchedulingReadiness SchedulerAsyncAPICalls
			SchedulerAsyncPreemption SchedulerPopFromBackoffQ SchedulerQueueingHints StorageCapacityScoring
			TopologyAwareWorkloadScheduling VolumeLimitScaling WorkloadAwarePreemption`},
		{Elsewhere, "kube-proxy", "NFTablesProxyMode PreferSameTrafficDistribution"},
		{Elsewhere, "nodes with Windows", `
			WinDSR WinOverlay WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork`},
	}
}
