package translate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// row is what one part of a pod comes to: what the runtime is asked for, beside
// what it is asked for by a pod that leaves that part out. fields_test.go sees to it
// that every field of the API has a row.
type row struct {
	// covers names fields, "Type.Field", with blanks between them.
	covers string
	// yaml is part of what the table is about, spec of the pod's specification.
	yaml, spec string
	with       func(*translate.Settings, *translate.ContainerInput)
	// want has the lines that come in ("+") and go ("-"); the container's hash changes anyway.
	want string
	// err is what the error says that there is instead.
	err string
	// by is the package that acts on the field, where the runtime isn't told of it,
	// or not only by way of this package.
	by string
}

// play runs the rows of a table; into puts a row's YAML where it belongs.
func play(t *testing.T, table []row, into func(*v1.Pod) any) {
	for _, r := range table {
		name := r.covers
		if r.err != "" {
			name += "/" + r.err
		}
		t.Run(name, func(t *testing.T) {
			plain, err := configs(&v1.Pod{}, func(*v1.Pod) error { return nil }, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := configs(&v1.Pod{}, func(p *v1.Pod) error {
				if err := yaml.UnmarshalStrict([]byte(r.spec), &p.Spec); err != nil {
					return err
				}
				return yaml.UnmarshalStrict([]byte(r.yaml), into(p))
			}, r.with)
			if r.err != "" {
				if err == nil || !strings.Contains(err.Error(), r.err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if have, want := difference(plain, got), trimmed(r.want); have != want {
				t.Errorf("%s\nhave:\n%s\nwant:\n%s", r.yaml, have, want)
			}
		})
	}
}

// configs makes the configurations of a small pod that change changes, as lines "path: value".
func configs(p *v1.Pod, change func(*v1.Pod) error, with func(*translate.Settings, *translate.ContainerInput)) ([]string, error) {
	p.Name, p.Namespace, p.UID = "web", "default", "1234"
	p.Spec.SecurityContext = &v1.PodSecurityContext{}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "example/web:1", SecurityContext: &v1.SecurityContext{}}}
	if err := change(p); err != nil {
		return nil, err
	}
	s := settings()
	in := translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0], ImageRef: "sha256:1",
		Env: []*runtimeapi.KeyValue{{Key: "PORT", Value: []byte("80")}}, Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/x"}}}
	if with != nil {
		with(s, &in)
	}
	sandbox, err := translate.SandboxConfig(s, translate.SandboxInput{Pod: p, Users: in.Users})
	if err != nil {
		return nil, err
	}
	container, err := translate.ContainerConfig(s, in)
	if err != nil {
		return nil, err
	}
	delete(container.Annotations, translate.AnnotationHash)
	lines, err := flat("sandbox", sandbox)
	if err != nil {
		return nil, err
	}
	more, err := flat("container", container)
	return append(lines, more...), err
}

func flat(name string, m proto.Message) ([]string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	var lines []string
	flatten(name, value, &lines)
	slices.Sort(lines)
	return lines, nil
}

func flatten(at string, value any, lines *[]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if strings.Contains(key, ".") {
				key = "[" + key + "]"
			}
			flatten(at+"."+key, inner, lines)
		}
		if len(v) == 0 {
			*lines = append(*lines, at+": {}")
		}
	case []any:
		for i, inner := range v {
			flatten(fmt.Sprintf("%s[%d]", at, i), inner, lines)
		}
	default:
		*lines = append(*lines, strings.TrimSpace(fmt.Sprintf("%s: %v", at, v)))
	}
}

func difference(before, after []string) string {
	var out []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

func trimmed(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func ownContainer(p *v1.Pod) any { return &p.Spec.Containers[0] }
func ownSecurity(p *v1.Pod) any  { return p.Spec.Containers[0].SecurityContext }
func podSecurity(p *v1.Pod) any  { return p.Spec.SecurityContext }
