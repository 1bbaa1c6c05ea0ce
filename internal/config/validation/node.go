package validation

import (
	"mime"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"
)

// apiServer checks the settings of requests to the API server.
func (k *check) apiServer() {
	k.period("nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency.Duration)
	k.positive(at("nodeStatusReportFrequency"), k.NodeStatusReportFrequency.Duration)
	atLeast(k, "nodeLeaseDurationSeconds", k.NodeLeaseDurationSeconds, 1, "must be more than 0")
	atLeast(k, "nodeStatusMaxImages", *k.NodeStatusMaxImages, -1, "must be 0 (none) or more, or -1 for no limit")
	atLeast(k, "kubeAPIQPS", *k.KubeAPIQPS, 0, "must be 0 or more")
	atLeast(k, "kubeAPIBurst", k.KubeAPIBurst, 0, "must be 0 or more")
	atLeast(k, "eventRecordQPS", *k.EventRecordQPS, 0, "must be 0 (no limit) or more")
	atLeast(k, "eventBurst", k.EventBurst, 0, "must be 0 or more")
	k.mediaType()
	oneOf(k, at("configMapAndSecretChangeDetectionStrategy"), k.ConfigMapAndSecretChangeDetectionStrategy,
		v1beta1.GetChangeDetectionStrategy, v1beta1.TTLCacheChangeDetectionStrategy,
		v1beta1.WatchChangeDetectionStrategy)
}

// mediaType checks contentType: API clients support only these types.
func (k *check) mediaType() {
	plain, _, err := mime.ParseMediaType(k.ContentType)
	if err != nil {
		plain = k.ContentType
	}
	oneOf(k, at("contentType"), plain, "application/vnd.kubernetes.protobuf", "application/json", "application/yaml",
		"application/cbor")
}

// registration checks the taints that the node registers itself with.
func (k *check) registration() {
	type identity struct {
		key    string
		effect v1.TaintEffect
	}
	seen := map[identity]bool{}
	for i, t := range k.RegisterWithTaints {
		path := at("registerWithTaints").Index(i)
		if len(validation.IsQualifiedName(t.Key)) > 0 {
			k.invalid(path.Child("key"), t.Key,
				`must be a name such as "dedicated" or "example.com/dedicated": letters, digits, -, _ and ., at most 63 after the /`)
		}
		if len(validation.IsValidLabelValue(t.Value)) > 0 {
			k.invalid(path.Child("value"), t.Value,
				"must be empty, or at most 63 letters, digits, -, _ and ., a letter or digit first and last")
		}
		// The API server requires an effect, and unique pairs of key and effect. If the node doesn't register itself,
		// neither matters.
		if t.Effect != "" || *k.RegisterNode {
			oneOf(k, path.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule,
				v1.TaintEffectNoExecute)
		}
		if t.TimeAdded != nil {
			k.forbidden(path.Child("timeAdded"), "is set by the control plane; leave it out")
		}
		id := identity{t.Key, t.Effect}
		if seen[id] && *k.RegisterNode {
			k.duplicate(path, t.ToString())
		}
		seen[id] = true
	}
}

// names checks the DNS settings of pods.
func (k *check) names() {
	for i, ip := range k.ClusterDNS {
		if _, err := netip.ParseAddr(ip); err != nil {
			k.invalid(at("clusterDNS").Index(i), ip, `must be an IP address such as "10.96.0.10"`)
		}
	}
	if d := strings.TrimSuffix(k.ClusterDomain, "."); d != "" && !isDomain(d) {
		k.invalid(at("clusterDomain"), k.ClusterDomain, `must be a DNS domain such as "cluster.local"`)
	}
	k.file(at("resolvConf"), *k.ResolverConfig)
}
