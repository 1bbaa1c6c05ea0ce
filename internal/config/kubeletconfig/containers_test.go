package kubeletconfig_test

import (
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

const preamble = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func validate(t *testing.T, text string) []string {
	t.Helper()
	doc, errs := kubeletconfig.Decode([]byte(preamble + text))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", text, errs)
	}
	c := doc.Config
	kubeletconfig.SetDefaults(&c)
	var fields []string
	for _, e := range kubeletconfig.Validate(&c) {
		fields = append(fields, e.Field)
	}
	return fields
}

func TestContainersAndImages(t *testing.T) {
	for text, want := range map[string]string{
		"registryPullQPS: 0":                                              "",
		"registryPullQPS: -1":                                             "registryPullQPS",
		"registryBurst: -1":                                               "registryBurst",
		"maxParallelImagePulls: 4":                                        "",
		"maxParallelImagePulls: 0":                                        "maxParallelImagePulls",
		"serializeImagePulls: true\nmaxParallelImagePulls: 1":             "",
		"serializeImagePulls: true\nmaxParallelImagePulls: 2":             "maxParallelImagePulls",
		"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0": "",
		"imageGCHighThresholdPercent: 101":                                "imageGCHighThresholdPercent",
		"imageGCHighThresholdPercent: 80":                                 "imageGCLowThresholdPercent",
		"imageGCLowThresholdPercent: -1":                                  "imageGCLowThresholdPercent",
		"imageMinimumGCAge: -1s":                                          "imageMinimumGCAge",
		"imageMaximumGCAge: 3m":                                           "",
		"imageMaximumGCAge: 2m":                                           "imageMaximumGCAge",
		"imageMaximumGCAge: -2m":                                          "imageMaximumGCAge",
		"imagePullCredentialsVerificationPolicy: AlwaysVerify":            "",
		"imagePullCredentialsVerificationPolicy: Sometimes":               "imagePullCredentialsVerificationPolicy",
		"preloadedImagesVerificationAllowlist: [a]":                       "preloadedImagesVerificationAllowlist",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a.io:5000/b, a.io/*]": "",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a.io/b:1]":            "preloadedImagesVerificationAllowlist[0]",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a, a*b]":              "preloadedImagesVerificationAllowlist[1]",
		"containerLogMaxSize: 64Ki":                                      "",
		"containerLogMaxSize: \"-1\"":                                    "",
		"containerLogMaxSize: \"0\"":                                     "containerLogMaxSize",
		"containerLogMaxSize: much":                                      "containerLogMaxSize",
		"containerLogMaxSize: 1e999999999":                               "containerLogMaxSize",
		"containerLogMaxFiles: 1":                                        "containerLogMaxFiles",
		"containerLogMaxWorkers: 0":                                      "containerLogMaxWorkers",
		"containerLogMonitorInterval: 10ms":                              "containerLogMonitorInterval",
		"cpuCFSQuotaPeriod: 1ms":                                         "",
		"cpuCFSQuotaPeriod: 2s":                                          "cpuCFSQuotaPeriod",
		"memorySwap: {swapBehavior: LimitedSwap}":                        "",
		"memorySwap: {swapBehavior: Unlimited}":                          "memorySwap.swapBehavior",
		"podPidsLimit: 100":                                              "",
		"podPidsLimit: 0":                                                "podPidsLimit",
		"podPidsLimit: -2":                                               "podPidsLimit",
		"memoryThrottlingFactor: 1":                                      "",
		"memoryThrottlingFactor: 1.1":                                    "memoryThrottlingFactor",
		"memoryReservationPolicy: TieredReservation":                     "",
		"memoryReservationPolicy: All":                                   "memoryReservationPolicy",
		"userNamespaces: {}":                                             "",
		"userNamespaces: {idsPerPod: 131072}":                            "",
		"userNamespaces: {idsPerPod: 65537}":                             "userNamespaces.idsPerPod",
		"userNamespaces: {idsPerPod: 4294967296}":                        "userNamespaces.idsPerPod",
		"allowedUnsafeSysctls: [kernel.msg*, net/core/somaxconn, net.*]": "",
		"allowedUnsafeSysctls: [\"*\"]":                                  "allowedUnsafeSysctls[0]",
		"allowedUnsafeSysctls: [vm.swappiness]":                          "allowedUnsafeSysctls[0]",
		"allowedUnsafeSysctls: [net.a*b]":                                "allowedUnsafeSysctls[0]",
	} {
		if got := strings.Join(validate(t, text), " "); got != want {
			t.Errorf("%s: wrong are %q, want %q", text, got, want)
		}
	}
}

// Who sets a number of parallel pulls needn't also say that they aren't serial.
func TestParallelPullsAreNotSerial(t *testing.T) {
	for text, want := range map[string]bool{"": true, "maxParallelImagePulls: 3": false, "maxParallelImagePulls: 1": true, "serializeImagePulls: false": false} {
		doc, errs := kubeletconfig.Decode([]byte(preamble + text))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		c := doc.Config
		kubeletconfig.SetDefaults(&c)
		if *c.SerializeImagePulls != want {
			t.Errorf("%q: serializeImagePulls is %v", text, *c.SerializeImagePulls)
		}
	}
}

func TestContainerLogMaxBytes(t *testing.T) {
	for text, want := range map[string]int64{"10Mi": 10 << 20, "256Ki": 256 << 10, "-1": -1, "-10Mi": -1, "1000": 1000, "1Ei": 1 << 60} {
		c := v1beta1.KubeletConfiguration{ContainerLogMaxSize: text}
		if n, err := kubeletconfig.ContainerLogMaxBytes(&c); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", text, n, err, want)
		}
	}
}
