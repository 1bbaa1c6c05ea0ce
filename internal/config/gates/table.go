package gates

// group is a group of gates with the same properties.
type group struct {
	stage      Stage
	on, locked bool
	names      string
}

// kubelet returns the gates of kubelet 1.36; testdata/kubelet-1.36-gates.txt names the source.
func kubelet() []group {
	return []group{
		{Alpha, off, free, `
			APIServingWithRoutine AllAlpha AllowUnsafeMalformedObjectDeletion CBORServingAndStorage CPUManagerPolicyAlphaOptions
			CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
			CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
			ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
			DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG GangScheduling GenericWorkload
			HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
			KubeletInUserNamespace LoggingAlphaOptions ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity
			NativeHistograms PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
			PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
			ShardedListAndWatch StorageCapacityScoring StorageVersionAPI TaintTolerationComparisonOperators
			TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
			WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob`},
		{Beta, on, free, `
			APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
			AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
			ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz
			ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging DRAConsumableCapacity
			DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices DRAResourceClaimDeviceStatus
			DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidationBeta
			DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet
			GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
			InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers
			KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletSeparateDiskGC
			KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot LoggingBetaOptions
			MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MutablePodResourcesForSuspendedJobs
			MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures NominatedNodeNameForExpectation OpenAPIEnums
			OpportunisticBatching PLEGOnDemandRelist PodDeletionCost PodLevelResources PodReadyToStartContainersCondition
			PodTopologyLabelsAdmission PortForwardWebsockets PreventStaticPodAPIReferences RelaxedServiceNameValidation
			ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus
			ResourceHealthStatusMessage RestartAllContainersOnContainerExits RotateKubeletServerCertificate
			SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
			StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
			StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash StrictIPCIDRValidation
			StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
			TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
			UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
			WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown`},
		{Beta, off, free, `
			AllBeta ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
			DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet PodCertificateRequest
			SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator`},
		{GA, on, locked, `
			APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
			AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting CSIServiceAccountTokenSecrets
			ConsistentListFromCache CustomResourceFieldSelectors DRAAdminAccess DeclarativeValidation DisableAllocatorDualWrite
			DynamicResourceAllocation ExecProbeTimeout ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume
			InOrderInformers InPlacePodVerticalScaling JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy
			JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources
			KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator
			MutableCSINodeAllocatableCount NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap
			OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking
			PodSchedulingReadiness PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure
			RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
			ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod
			SchedulerQueueingHints SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
			ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
			StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
			SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass
			WinDSR WinOverlay`},
		{GA, on, free, `
			AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion MutatingAdmissionPolicy`},
		{Deprecated, on, locked, `
			AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion`},
		{Deprecated, on, free, `
			DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods ServiceCIDRStatusFieldWiping
			StorageNamespaceIndex`},
		{Deprecated, off, locked, `
			AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC`},
		{Deprecated, off, free, `
			AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
			DeclarativeValidationTakeover KMSv1 KubeletRegistrationGetOnExistsOnly WindowsHostNetwork`},
	}
}

// Readable names for the table's booleans.
const (
	on, off      = true, false
	locked, free = true, false
)

// needs returns the gates that each gate needs to be on.
func needs() map[string]string {
	return map[string]string{
		"ClusterTrustBundleProjection":                   "ClusterTrustBundle",
		"DRADeviceBindingConditions":                     "DRAResourceClaimDeviceStatus",
		"DRADeviceTaintRules":                            "DRADeviceTaints",
		"DRAResourceClaimGranularStatusAuthorization":    "DRAResourceClaimDeviceStatus",
		"DRAWorkloadResourceClaims":                      "GenericWorkload",
		"ExtendWebSocketsToKubelet":                      "NodeDeclaredFeatures",
		"GangScheduling":                                 "GenericWorkload",
		"GracefulNodeShutdownBasedOnPodPriority":         "GracefulNodeShutdown",
		"InPlacePodLevelResourcesVerticalScaling":        "NodeDeclaredFeatures PodLevelResources",
		"InPlacePodVerticalScalingInitContainers":        "NodeDeclaredFeatures",
		"MatchLabelKeysInPodTopologySpreadSelectorMerge": "MatchLabelKeysInPodTopologySpread",
		"PodLevelResourceManagers":                       "PodLevelResources",
		"ResourceHealthStatusMessage":                    "ResourceHealthStatus",
		"RestartAllContainersOnContainerExits":           "ContainerRestartRules NodeDeclaredFeatures",
		"StaleControllerConsistencyDaemonSet":            "AtomicFIFO",
		"StaleControllerConsistencyJob":                  "AtomicFIFO",
		"StaleControllerConsistencyReplicaSet":           "AtomicFIFO",
		"StaleControllerConsistencyStatefulSet":          "AtomicFIFO",
		"StorageVersionAPI":                              "APIServerIdentity",
		"TopologyAwareWorkloadScheduling":                "GenericWorkload",
		"UnknownVersionInteroperabilityProxy":            "APIServerIdentity",
		"UserNamespacesHostNetworkSupport":               "NodeDeclaredFeatures",
		"WindowsGracefulNodeShutdown":                    "GracefulNodeShutdown",
		"WorkloadAwarePreemption":                        "GangScheduling",
		"WorkloadWithJob":                                "GenericWorkload",
	}
}
