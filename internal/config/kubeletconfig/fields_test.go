package kubeletconfig_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

// leaves lists every field by its path, down to values that have no fields.
func leaves(t reflect.Type, path string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case f.Anonymous:
			out = append(out, leaves(ft, path)...)
		case ft.Kind() == reflect.Struct && !reflect.PointerTo(ft).Implements(reflect.TypeFor[json.Unmarshaler]()):
			out = append(out, leaves(ft, path+name+".")...)
		default:
			out = append(out, path+name)
		}
	}
	return out
}

func TestFieldsTableIsComplete(t *testing.T) {
	used := map[string]bool{}
	for _, f := range kubeletconfig.Fields() {
		if _, twice := used[f.Path]; twice {
			t.Errorf("%s has two entries", f.Path)
		}
		used[f.Path] = false
	}
	for _, leaf := range leaves(reflect.TypeFor[v1beta1.KubeletConfiguration](), "") {
		entry := leaf
		for {
			if _, ok := used[entry]; ok {
				used[entry] = true
				break
			}
			cut := strings.LastIndexByte(entry, '.')
			if cut < 0 {
				t.Errorf("%s has no entry: say whether this build acts on it, and if not, why", leaf)
				break
			}
			entry = entry[:cut]
		}
	}
	for path, hit := range used {
		if !hit {
			t.Errorf("%s is in the table but is no field of the API type", path)
		}
	}
}

func TestNotActedOnTellsWhatIsMeant(t *testing.T) {
	doc, errs := kubeletconfig.Decode([]byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
evictionHard:
  memory.available: 200Mi
cpuManagerReconcilePeriod: 0s
memorySwap: {}
clusterDNS: []
featureGates:
  MemoryQoS: false
  Other: true
memoryThrottlingFactor: 0.5
logging:
  verbosity: 2
  flushFrequency: 3s
  options:
    json:
      infoBufferSize: "0"
authentication:
  anonymous:
    enabled: false
`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := []string{
		"evictionHard (line 4): this build doesn't evict pods",
		"featureGates[Other] (line 11): this build has no such switch",
		"memoryThrottlingFactor (line 12): it needs the feature gate MemoryQoS",
		"logging.flushFrequency (line 15): this build writes its log unbuffered, all to one place and with one verbosity",
		"authentication (line 19): this build has no authenticated HTTPS server",
	}
	if diff := cmp.Diff(want, doc.NotActedOn()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
