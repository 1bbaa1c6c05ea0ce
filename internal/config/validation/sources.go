package validation

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// sources checks the sources of pods, and how often they are checked.
func (k *check) sources() {
	k.period("syncFrequency", k.SyncFrequency.Duration)
	k.period("fileCheckFrequency", k.FileCheckFrequency.Duration)
	k.period("httpCheckFrequency", k.HTTPCheckFrequency.Duration)
	k.file(at("staticPodPath"), k.StaticPodPath)
	if k.StaticPodURL != "" {
		u, err := url.Parse(k.StaticPodURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			k.invalid(at("staticPodURL"), field.OmitValueType{},
				`must be an http or https URL such as "https://host/pods.yaml"`)
		}
	}
	k.headers(at("staticPodURLHeader"))
}

func (k *check) headers(path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(k.StaticPodURLHeader)) {
		if !httpguts.ValidHeaderFieldName(name) {
			k.invalid(path, nameOnly(name), "must be the name of an HTTP header: letters, digits and dashes")
			continue
		}
		for _, v := range k.StaticPodURLHeader[name] {
			if !httpguts.ValidHeaderFieldValue(v) {
				k.invalid(path.Key(name), field.OmitValueType{},
					"must be the value of an HTTP header: one line without control characters")
			}
		}
	}
}

// nameOnly returns the part of an invalid header name that is safe to report. The rest may be the header's value.
func nameOnly(text string) string {
	for i, r := range text {
		if !httpguts.ValidHeaderFieldName(string(r)) {
			return text[:i] + "…"
		}
	}
	return text
}

// PodCIDRs parses podCIDR: empty, one network, or one of each IP family separated by a comma, in either order.
func PodCIDRs(c *v1beta1.KubeletConfiguration) ([]netip.Prefix, *field.Error) {
	if c.PodCIDR == "" {
		return nil, nil
	}
	nets, err := networks(c.PodCIDR)
	if err != nil {
		return nil, field.Invalid(at("podCIDR"), short(c.PodCIDR), err.Error())
	}
	return nets, nil
}
