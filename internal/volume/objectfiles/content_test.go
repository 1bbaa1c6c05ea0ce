package objectfiles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}

// world is what manifests define, in a test.
func world(synced bool) object.View {
	many := &v1.ConfigMap{ObjectMeta: named("many"), Data: map[string]string{}}
	for i := range 14 {
		many.Data[fmt.Sprintf("key-%02d", i)] = ""
	}
	var list []*object.Desired
	for _, o := range []object.Object{
		&v1.ConfigMap{ObjectMeta: named("web"), Data: map[string]string{"app.conf": "text", "empty": ""}, BinaryData: map[string][]byte{"logo": {0xff, 0}}},
		&v1.ConfigMap{ObjectMeta: named("nothing")},
		&v1.ConfigMap{ObjectMeta: named("full"), Data: map[string]string{"a": strings.Repeat("x", 1<<19)}, BinaryData: map[string][]byte{"b": make([]byte, 1<<19)}},
		&v1.ConfigMap{ObjectMeta: named("large"), Data: map[string]string{"a": strings.Repeat("x", 1<<19)}, BinaryData: map[string][]byte{"b": make([]byte, 1<<19+1)}},
		&v1.ConfigMap{ObjectMeta: named("odd"), Data: map[string]string{"..data": "x"}},
		&v1.Secret{ObjectMeta: named("pass"), Data: map[string][]byte{"user": []byte("hunter"), "word": []byte("hunter2")}},
		&v1.Secret{ObjectMeta: named("large"), Data: map[string][]byte{"a": []byte(strings.Repeat("hunter2", 1<<18))}},
		&v1.Secret{ObjectMeta: named("also"), Data: map[string][]byte{"app.conf": []byte("from the Secret")}},
		many,
	} {
		list = append(list, object.NewDesired(o, pod.SourceFile, "/manifests/all.yaml"))
	}
	return objecttest.View(object.NewSet(list, synced))
}

func configMap(name string, optional *bool, items ...v1.KeyToPath) *v1.ConfigMapVolumeSource {
	return &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional, Items: items}
}

// asSecret is the same for a Secret.
func asSecret(s *v1.ConfigMapVolumeSource) *v1.SecretVolumeSource {
	return &v1.SecretVolumeSource{SecretName: s.Name, Optional: s.Optional, Items: s.Items, DefaultMode: s.DefaultMode}
}

// shown is files as they are easily compared.
func shown(files map[string]atomicwriter.File) string {
	var list []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		text := string(f.Data)
		if len(text) > 20 {
			text = fmt.Sprint(len(text), " bytes")
		}
		list = append(list, fmt.Sprintf("%s %o %q", path, f.Mode, text))
	}
	return strings.Join(list, ", ")
}

func TestConfigMap(t *testing.T) {
	restricted := configMap("web", nil, v1.KeyToPath{Key: "app.conf", Path: "a"}, v1.KeyToPath{Key: "logo", Path: "b", Mode: ptr.To[int32](0)})
	restricted.DefaultMode = ptr.To[int32](0o400)
	for _, c := range []struct {
		source *v1.ConfigMapVolumeSource
		want   string
	}{
		{configMap("web", nil), `app.conf 644 "text", empty 644 "", logo 644 "\xff\x00"`},
		{configMap("web", nil, v1.KeyToPath{Key: "app.conf", Path: "etc/./app//x.conf"}), `etc/app/x.conf 644 "text"`},
		{configMap("web", nil, v1.KeyToPath{Key: "app.conf", Path: "a"}, v1.KeyToPath{Key: "app.conf", Path: "b"}), `a 644 "text", b 644 "text"`},
		{restricted, `a 400 "text", b 0 "\xff\x00"`},
		{configMap("nothing", nil), ""},
		{configMap("none", ptr.To(true)), ""},
		{configMap("none", ptr.To(true), v1.KeyToPath{Key: "k", Path: "p"}), ""},
		{configMap("web", ptr.To(true), v1.KeyToPath{Key: "none", Path: "p"}, v1.KeyToPath{Key: "empty", Path: "e"}), `e 644 ""`},
		{configMap("full", nil), `a 644 "524288 bytes", b 644 "524288 bytes"`},
	} {
		files, err := configMapFiles(t.Context(), world(true), "default", c.source)
		if err != nil || shown(files) != c.want {
			t.Errorf("%v: %s, %v; want %s", c.source, shown(files), err, c.want)
		}
	}
}

func TestSecret(t *testing.T) {
	files, err := secretFiles(t.Context(), world(true), "default", &v1.SecretVolumeSource{SecretName: "pass"})
	if err != nil || shown(files) != `user 644 "hunter", word 644 "hunter2"` {
		t.Errorf("%s, %v", shown(files), err)
	}
	files, err = secretFiles(t.Context(), world(true), "default", &v1.SecretVolumeSource{
		SecretName: "pass", DefaultMode: ptr.To[int32](0o600), Items: []v1.KeyToPath{{Key: "word", Path: "deep/er", Mode: ptr.To[int32](0o400)}, {Key: "user", Path: "u"}},
	})
	if err != nil || shown(files) != `deep/er 400 "hunter2", u 600 "hunter"` {
		t.Errorf("%s, %v", shown(files), err)
	}
}

func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		source  *v1.ConfigMapVolumeSource
		secret  bool
		object  string
		message string
	}{
		{configMap("none", nil), false, "ConfigMap default/none", `ConfigMap "none" (namespace default) isn't there: create it, or mark the volume's source as optional`},
		{configMap("web", ptr.To(false)), true, "Secret default/web", `Secret "web" (namespace default) isn't there: create it, or mark the volume's source as optional`},
		{configMap("web", nil, v1.KeyToPath{Key: "x", Path: "x"}, v1.KeyToPath{Key: "empty", Path: "e"}, v1.KeyToPath{Key: "y", Path: "y"}), false, "ConfigMap default/web",
			`ConfigMap "web" (namespace default) has no key "x", "y" (it has "app.conf", "empty", "logo"): add it, or mark the volume's source as optional`},
		{configMap("pass", nil, v1.KeyToPath{Key: "x", Path: "x"}), true, "Secret default/pass", `Secret "pass" (namespace default) has no key "x" (it has "user", "word"): add it, or mark the volume's source as optional`},
		{configMap("nothing", nil, v1.KeyToPath{Key: "x", Path: "x"}), false, "ConfigMap default/nothing", `ConfigMap "nothing" (namespace default) has no key "x" (it has none): add it, or mark the volume's source as optional`},
		{configMap("many", nil, v1.KeyToPath{Key: "x", Path: "x"}), false, "ConfigMap default/many", `and 4 more): add it`},
		{configMap("large", nil), false, "ConfigMap default/large", `ConfigMap "large" (namespace default) has 1048577 bytes of data, and may have no more than 1 MiB (1048576 bytes): split it`},
		{configMap("large", ptr.To(true), v1.KeyToPath{Key: "none", Path: "x"}), true, "Secret default/large", `Secret "large" (namespace default) has 1835008 bytes of data`},
		{configMap("odd", nil), false, "ConfigMap default/odd", `ConfigMap "odd" (namespace default) has the key "..data", which can't be a file's name`},
	} {
		var files map[string]atomicwriter.File
		var err error
		if c.secret {
			files, err = secretFiles(t.Context(), world(true), "default", asSecret(c.source))
		} else {
			files, err = configMapFiles(t.Context(), world(true), "default", c.source)
		}
		var awaits *volume.AwaitsError
		if !errors.As(err, &awaits) || awaits.Object.String() != c.object || !strings.Contains(err.Error(), c.message) || files != nil {
			t.Errorf("%v\nnot %s: %s", err, c.object, c.message)
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("a Secret's value: %v", err)
		}
	}
}

// While manifests are still being read, nothing is missing yet, and what is optional may be there.
func TestWhatIsBeingRead(t *testing.T) {
	for _, optional := range []*bool{nil, ptr.To(true)} {
		files, err := configMapFiles(t.Context(), world(false), "default", configMap("none", optional))
		var awaits *volume.AwaitsError
		if !errors.As(err, &awaits) || awaits.Object.String() != "ConfigMap default/none" || !object.IsUnknown(err) || files != nil {
			t.Errorf("%v, %v", files, err)
		}
	}
}

// Who misses an object whose manifest has a mistake isn't told to create it.
func TestWhatIsRefused(t *testing.T) {
	key := object.Key{Kind: object.Secret, Namespace: "default", Name: "large"}
	from := objecttest.View(object.NewSet(nil, true).WithRefused(map[object.Key]string{key: "/etc/m/large.yaml"}))
	_, err := secretFiles(t.Context(), from, "default", asSecret(configMap("large", nil)))
	var awaits *volume.AwaitsError
	if !errors.As(err, &awaits) || awaits.Object.String() != "Secret default/large" || !strings.Contains(err.Error(), "/etc/m/large.yaml defines it, but there is a mistake") || strings.Contains(err.Error(), "create it") {
		t.Errorf("got %v", err)
	}
	if files, err := secretFiles(t.Context(), from, "default", asSecret(configMap("large", ptr.To(true)))); err != nil || len(files) != 0 {
		t.Errorf("an optional one: %v, %v", files, err)
	}
}

type broken struct {
	object.View
	err error
}

func (b broken) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) { return nil, b.err }
func (b broken) Secret(context.Context, string, string) (*v1.Secret, error)       { return nil, b.err }

// What can't be asked isn't missing, also for what is optional.
func TestWhatCannotBeAsked(t *testing.T) {
	from := broken{err: fmt.Errorf("asking the server: %w", context.DeadlineExceeded)}
	_, err := configMapFiles(t.Context(), from, "default", configMap("web", ptr.To(true)))
	var awaits *volume.AwaitsError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &awaits) || !strings.Contains(err.Error(), `can't read ConfigMap "web" (namespace default)`) {
		t.Errorf("%v", err)
	}
	if _, err := secretFiles(t.Context(), from, "default", &v1.SecretVolumeSource{SecretName: "pass"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestWrongPaths(t *testing.T) {
	for _, at := range []string{"", "/etc/x", "..", "../x", "a/../../x", "a/../x", "..data", "./..data", `a\b`, ".", "./", "a\x00", strings.Repeat("n", 256)} {
		for _, key := range []string{"app.conf", "none"} {
			files, err := configMapFiles(t.Context(), world(true), "default", configMap("web", ptr.To(true), v1.KeyToPath{Key: key, Path: at}))
			if err == nil || !strings.Contains(err.Error(), key) || files != nil {
				t.Errorf("%.20q, %s: %s, %v", at, key, shown(files), err)
			}
		}
		p := &v1.Pod{}
		item := v1.DownwardAPIVolumeFile{Path: at, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		if files, err := downwardFiles(p, []v1.DownwardAPIVolumeFile{item}, nil, nil); err == nil {
			t.Errorf("%.20q: %s", at, shown(files))
		}
	}
	twice := configMap("web", nil, v1.KeyToPath{Key: "app.conf", Path: "a/b"}, v1.KeyToPath{Key: "logo", Path: "a//b"})
	if files, err := configMapFiles(t.Context(), world(true), "default", twice); err == nil || !strings.Contains(err.Error(), `"a/b" is there twice`) {
		t.Errorf("%s, %v", shown(files), err)
	}
}

func field(path, at string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: at, FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
}

func thePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", Labels: map[string]string{"b": "2", "a": "1"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}}}},
	}
}

func TestDownwardAPI(t *testing.T) {
	limit := v1.DownwardAPIVolumeFile{Path: "mem", Mode: ptr.To[int32](0o400), ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}
	cpu := v1.DownwardAPIVolumeFile{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"}}
	source := &v1.DownwardAPIVolumeSource{DefaultMode: ptr.To[int32](0o640), Items: []v1.DownwardAPIVolumeFile{
		field("metadata.labels", "meta/labels"), field("metadata.labels['a']", "a"), field("metadata.annotations", "none"), limit, cpu,
	}}
	files, err := downwardFiles(thePod(), source.Items, source.DefaultMode, v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")})
	if want := `a 640 "1", cpu 640 "4", mem 400 "64", meta/labels 640 "a=\"1\"\nb=\"2\"", none 640 ""`; err != nil || shown(files) != want {
		t.Errorf("%s, %v", shown(files), err)
	}
	for want, item := range map[string]v1.DownwardAPIVolumeFile{
		"spec.nodeName": field("spec.nodeName", "x"), // environments only
		"containerName": {Path: "x", ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}},
		"neither":       {Path: "x"},
	} {
		if _, err := downwardFiles(thePod(), []v1.DownwardAPIVolumeFile{item}, nil, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `file "x"`) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func ofConfigMap(name string, items ...v1.KeyToPath) v1.VolumeProjection {
	return v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}}
}

func ofSecret(name string, items ...v1.KeyToPath) v1.VolumeProjection {
	return v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}}
}

func projected(sources ...v1.VolumeProjection) *v1.ProjectedVolumeSource {
	return &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr.To[int32](0o440)}
}

func TestProjected(t *testing.T) {
	down := v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{field("metadata.name", "pod/name")}}}
	optional := ofConfigMap("none")
	optional.ConfigMap.Optional = ptr.To(true)
	optionalSecret := ofSecret("none")
	optionalSecret.Secret.Optional = ptr.To(true)
	for _, c := range []struct {
		source *v1.ProjectedVolumeSource
		want   string
	}{
		{projected(), ""},
		{projected(ofConfigMap("web", v1.KeyToPath{Key: "app.conf", Path: "conf/app"}), ofSecret("pass", v1.KeyToPath{Key: "word", Path: "conf/word", Mode: ptr.To[int32](0o400)}), down, optional, optionalSecret),
			`conf/app 440 "text", conf/word 400 "hunter2", pod/name 440 "web"`},
		{projected(ofConfigMap("web"), ofSecret("also")), `app.conf 440 "from the Secret", empty 440 "", logo 440 "\xff\x00"`},
		{projected(ofSecret("also"), ofConfigMap("web")), `app.conf 440 "text", empty 440 "", logo 440 "\xff\x00"`},
		{projected(ofConfigMap("full"), ofConfigMap("full", v1.KeyToPath{Key: "a", Path: "again"})), `a 440 "524288 bytes", again 440 "524288 bytes", b 440 "524288 bytes"`},
	} {
		files, err := projectedFiles(t.Context(), world(true), thePod(), c.source, nil)
		if err != nil || shown(files) != c.want {
			t.Errorf("%v\n%s, %v; want %s", c.source, shown(files), err, c.want)
		}
	}
	var awaits *volume.AwaitsError
	if _, err := projectedFiles(t.Context(), world(true), thePod(), projected(down, ofSecret("none")), nil); !errors.As(err, &awaits) || awaits.Object.String() != "Secret default/none" {
		t.Errorf("%v", err)
	}
	if _, err := projectedFiles(t.Context(), world(true), thePod(), projected(v1.VolumeProjection{}), nil); err == nil {
		t.Error("a source that names nothing")
	}
}

func TestSourcesThatNeedAnAPIServer(t *testing.T) {
	for name, s := range map[string]v1.VolumeProjection{
		"serviceAccountToken": {ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		"clusterTrustBundle":  {ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca"}},
		"podCertificate":      {PodCertificate: &v1.PodCertificateProjection{KeyPath: "key"}},
	} {
		// It is no use to wait for the ConfigMap.
		_, err := projectedFiles(t.Context(), world(true), thePod(), projected(ofConfigMap("none"), s), nil)
		if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "needs an API server") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever path a pod asks for, what comes out can be written, or is refused.
func FuzzItems(f *testing.F) {
	for _, s := range [][2]string{{"a", "b"}, {"a/b", "a"}, {"../x", "y"}, {"a/./b", "a//b"}, {"a/", "a/b/"}, {"..data", "./..x"}} {
		f.Add(s[0], s[1])
	}
	from := world(true)
	f.Fuzz(func(t *testing.T, one, two string) {
		files, err := configMapFiles(t.Context(), from, "default", configMap("web", nil, v1.KeyToPath{Key: "app.conf", Path: one}, v1.KeyToPath{Key: "empty", Path: two}))
		if err != nil {
			return
		}
		if len(files) != 2 {
			t.Errorf("%q, %q: %s", one, two, shown(files))
		}
		for at := range files {
			if err := atomicwriter.Check(at); err != nil {
				t.Error(err)
			}
		}
	})
}

type withToken struct{ object.View }

func (withToken) Token(context.Context, object.TokenRequest) (object.Token, error) {
	return object.NewToken("t", time.Time{}, time.Time{}), nil
}

// TestTokenOwner: a token is its pod's alone where it is known as whom that runs.
func TestTokenOwner(t *testing.T) {
	as := func(users ...int64) (list []v1.Container) {
		for _, u := range users {
			c := v1.Container{}
			if u >= 0 {
				c.SecurityContext = &v1.SecurityContext{RunAsUser: &u}
			}
			list = append(list, c)
		}
		return list
	}
	user, group := &v1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}, &v1.PodSecurityContext{FSGroup: ptr.To[int64](5)}
	for name, tc := range map[string]struct {
		spec v1.PodSpec
		mode uint32
		uid  int64
	}{
		"nothing":          {v1.PodSpec{Containers: as(-1, -1)}, 0o644, -1},
		"pod":              {v1.PodSpec{SecurityContext: user, Containers: as(-1, -1)}, 0o600, 7},
		"containers":       {v1.PodSpec{InitContainers: as(8), Containers: as(8, 8)}, 0o600, 8},
		"root":             {v1.PodSpec{Containers: as(0)}, 0o600, 0},
		"overridden":       {v1.PodSpec{SecurityContext: user, Containers: as(8)}, 0o600, 8},
		"two":              {v1.PodSpec{SecurityContext: user, Containers: as(-1, 8)}, 0o644, -1},
		"init differs":     {v1.PodSpec{InitContainers: as(7), Containers: as(8)}, 0o644, -1},
		"one doesn't say":  {v1.PodSpec{Containers: as(8, -1)}, 0o644, -1},
		"group":            {v1.PodSpec{SecurityContext: group, Containers: as(-1)}, 0o600, -1},
		"group of several": {v1.PodSpec{SecurityContext: group, Containers: as(7, 8)}, 0o600, -1},
	} {
		files, err := tokenFile(t.Context(), withToken{}, &v1.Pod{Spec: tc.spec}, &v1.ServiceAccountTokenProjection{Path: "token"}, nil)
		f := files["token"]
		if err != nil || f.Mode != tc.mode || ptr.Deref(f.UID, -1) != tc.uid {
			t.Errorf("%s: mode %o, user %d, %v", name, f.Mode, ptr.Deref(f.UID, -1), err)
		}
	}
	if files, _ := tokenFile(t.Context(), withToken{}, &v1.Pod{Spec: v1.PodSpec{Containers: as(-1)}}, &v1.ServiceAccountTokenProjection{Path: "token"}, ptr.To[int32](0o440)); files["token"].Mode != 0o440 {
		t.Errorf("the volume's mode: %o", files["token"].Mode)
	}
}
