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
		{AlwaysOn, "log lines say what they are about", "ContextualLogging"},
		{AlwaysOn, "cpuCFSQuotaPeriod counts", "CustomCPUCFSQuotaPeriod"},
		{AlwaysOn, "no node object is written, so none names a version of kube-proxy", "DisableNodeKubeProxyVersion"},
		{AlwaysOn, "environment variables may come from files that containers write", "EnvFiles"},
		{AlwaysOn, "the runtime's events are listened to, if it has any", "EventedPLEG"},
		{AlwaysOn, "exec probes end at their timeout", "ExecProbeTimeout"},
		{AlwaysOn, "pods may set their host name as a whole", "HostnameOverride"},
		{AlwaysOn, "streams may be spoken over WebSocket in version 5, and port-forward in a tunnel",
			"ExtendWebSocketsToKubelet"},
		{AlwaysOn, "imageMaximumGCAge counts", "ImageMaximumGCAge"},
		{AlwaysOn, "volumes may be images", "ImageVolume"},
		{AlwaysOn, "pods are resized in place", "InPlacePodVerticalScaling InPlacePodLevelResourcesVerticalScaling"},
		{AlwaysOn, "crashLoopBackOff.maxContainerRestartPeriod counts", "KubeletCrashLoopBackOffMax"},
		{AlwaysOn, "it is known who may use which image", "KubeletEnsureSecretPulledImages"},
		{AlwaysOn, "tracing counts", "KubeletTracing"},
		{AlwaysOn, "the socket of pod resources tells of one pod, too", "KubeletPodResourcesGet"},
		{AlwaysOn, "the socket of pod resources lists no pods that have ended", "KubeletPodResourcesListUseActivePods"},
		{AlwaysOn, "statistics say how long was waited for CPU, memory and disk, where the kernel has that for " +
			"control groups (PSI)", "KubeletPSI"},
		{AlwaysOn, "rights to pods, healthz and configz of a node suffice for what they name",
			"KubeletFineGrainedAuthz"},
		{AlwaysOn, "what containers write doesn't count as space that images take", "KubeletSeparateDiskGC"},
		{AlwaysOn, "project quotas measure what pods with user namespaces use on disk, where the file system has them",
			"LocalStorageCapacityIsolationFSQuotaMonitoring"},
		{AlwaysOn, "the log can be written as JSON", "LoggingBetaOptions"},
		{AlwaysOn, "the node's status declares what this build has of what pods may need", "NodeDeclaredFeatures"},
		{AlwaysOn, "enableSystemLogQuery counts", "NodeLogQuery"},
		{AlwaysOn, "containers may use swap by memorySwap", "NodeSwap"},
		{AlwaysOn, "what a call to the runtime came to is known at once", "PLEGOnDemandRelist"},
		{AlwaysOn, "pods may have resources as a whole", "PodLevelResources"},
		{AlwaysOn, "hooks may sleep", "PodLifecycleSleepAction PodLifecycleSleepActionAllowZero"},
		{AlwaysOn, "logs can be had of standard output or standard error alone", "PodLogsQuerySplitStreams"},
		{AlwaysOn, "the status says which generation of the pod it is about", "PodObservedGenerationTracking"},
		{AlwaysOn, "the status has the condition PodReadyToStartContainers", "PodReadyToStartContainersCondition"},
		{AlwaysOn, "containers may have /proc unmasked", "ProcMountType"},
		{AlwaysOn, "mounts may be read-only to their depths", "RecursiveReadOnlyMounts"},
		{AlwaysOn, "a changed authentication.x509.clientCAFile counts at once", "ReloadKubeletClientCAFile"},
		{AlwaysOn, "a changed tlsCertFile counts at once", "ReloadKubeletServerCertificateFile"},
		{AlwaysOn, "search domains may have underscores", "RelaxedDNSSearchValidation"},
		{AlwaysOn, "environment variables may have almost any name", "RelaxedEnvironmentVariableValidation"},
		{AlwaysOn, "services may have names that begin with a digit", "RelaxedServiceNameValidation"},
		{AlwaysOn, "the end of a container may have all of its pod restarted", "RestartAllContainersOnContainerExits"},
		{AlwaysOn, "init containers may go on running as sidecars", "SidecarContainers"},
		{AlwaysOn, "pods may choose how supplemental groups are found", "SupplementalGroupsPolicy"},
		{AlwaysOn, "its log can be split between standard output and standard error", "LoggingAlphaOptions"},
		{AlwaysOn, "the runtime is asked for its cgroup driver", "KubeletCgroupDriverFromCRI"},
		{AlwaysOn, "systemd's watchdog is fed where there is one", "SystemdWatchdog"},
		{AlwaysOn, "tolerations may compare numbers", "TaintTolerationComparisonOperators"},
		{AlwaysOn, "pods may have users of their own", "UserNamespacesSupport"},
	}
}

// never returns gates whose texts complete "never on in this build:".
func never() []effectGroup {
	return []effectGroup{
		{NeverOn, "it doesn't assign CPUs or memory to containers", `
			CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CPUManagerPolicyOptions DisableCPUQuotaWithExclusiveCPUs
			InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
			KubeletPodResourcesDynamicResources
			PodLevelResourceManagers
			TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions`},
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
		{NeverOn, "it doesn't hold up the node's shutdown",
			"GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority"},
		{NeverOn, "it reads control groups itself, whatever the runtime could tell of them",
			"PodAndContainerStatsFromCRI"},
		{NeverOn, "a container's grace period isn't overwritten", "AllowOverwriteTerminationGracePeriodSeconds"},
		{NeverOn, "a restart of the agent changes no container's status", "ChangeContainerStatusOnKubeletRestart"},
		{NeverOn, "it lists what the runtime has by single answers", "CRIListStreaming"},
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
