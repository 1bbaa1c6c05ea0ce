package fields

// file returns the fields that describe the file itself, or change the meaning of other fields.
func file() []Field {
	return []Field{
		{Path: "apiVersion", Package: "config", Default: "none, it must be there",
			Doc: "The version of the format: always kubelet.config.k8s.io/v1beta1."},
		{Path: "kind", Package: "config", Default: "none, it must be there",
			Doc: "The kind of document: always KubeletConfiguration."},
		{Path: "featureGates", Package: "config",
			Doc: "Switches features on or off, by the kubelet's names (AllAlpha and AllBeta switch all of a " +
				"stage). A name that isn't known is an error, and so is changing one that is locked.",
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
			Doc: "How often staticPodPath is looked through again, at least 100ms. Changes that the kernel reports " +
				"are seen at once; this is for those that it doesn't report, such as on NFS."},
		{Path: "httpCheckFrequency", Package: "desired",
			Doc: "How often staticPodURL is asked, at least 100ms."},
		{Path: "syncFrequency", Package: "worker",
			Doc: "How often every pod is looked at again although nothing has happened, at least 100ms."},
		{Path: "runOnce", Package: "agent",
			Doc: "Start the pods there are, print how each came up, and exit: with an error if one of them failed. " +
				"The kubelet calls it deprecated."},
	}
}
