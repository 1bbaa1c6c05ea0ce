package fields

// file returns the fields about the configuration file as a whole: its type, and the feature gates.
func file() []Field {
	return []Field{
		{Path: "apiVersion", Package: "config", Default: "none, it must be there",
			Doc: "The version of the format: always kubelet.config.k8s.io/v1beta1."},
		{Path: "kind", Package: "config", Default: "none, it must be there",
			Doc: "The kind of document: always KubeletConfiguration."},
		{Path: "featureGates", Package: "config",
			Doc: "Switches features on or off, by the kubelet's names (AllAlpha and AllBeta switch all of a stage). " +
				"An unknown name is an error, and so is changing a locked gate.",
			Default: "every feature as its stage has it: beta mostly on, alpha off"},
	}
}

// sources returns the fields about the sources of pods, and how often they are checked.
func sources() []Field {
	return []Field{
		{Path: "staticPodPath", Package: "desired", Default: "no directory",
			Doc: "The directory with the manifests of the pods to run, or a single manifest. A path that isn't " +
				"absolute counts from the directory of the configuration file."},
		{Path: "staticPodURL", Package: "desired", Default: "no URL",
			Doc: "An http or https URL that answers with the manifests of pods to run."},
		{Path: "staticPodURLHeader", Package: "desired", Default: "none",
			Doc: "HTTP headers to send to staticPodURL: a list of values for each name. The values are kept out of " +
				"logs and messages."},
		{Path: "fileCheckFrequency", Package: "desired",
			Doc: "How often staticPodPath is read again, at least 100ms. Changes that the kernel reports are seen at " +
				"once; this is for those that it doesn't report, such as on NFS."},
		{Path: "httpCheckFrequency", Package: "desired",
			Doc: "How often staticPodURL is requested, at least 100ms."},
		{Path: "syncFrequency", Package: "worker",
			Doc: "How often every pod is synced even if nothing has changed, at least 100ms."},
		{Path: "runOnce", Package: "agent",
			Doc: "Start the pods there are, print whether each is running, and exit: with an error if one of them " +
				"failed. It is deprecated in the kubelet."},
	}
}
