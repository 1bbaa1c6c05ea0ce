package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// ruleCase is a pod's spec, in part, and the errors it must have: one a line,
// "kind path". Where no containers are given, one good one is added.
type ruleCase struct {
	spec, want string
}

// c is a spec whose only container, called "c", has some fields more.
func c(fields string) string { return "{containers: [{name: c, image: i, " + fields + "}]}" }

// ic is a spec with an init container "i" that has some fields more.
func ic(fields string) string {
	return "{initContainers: [{name: i, image: i, " + fields + "}]}"
}

// vol is a spec with one volume "v".
func vol(fields string) string { return "{volumes: [{name: v, " + fields + "}]}" }

// mount is a spec with an emptyDir "v", a claim "p" and a container with some fields more.
func mount(fields string) string {
	return "{volumes: [{name: v, emptyDir: {}}, {name: p, persistentVolumeClaim: {claimName: x}}], containers: [{name: c, image: i, " + fields + "}]}"
}

func podOf(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: p, namespace: n}\nspec: "+spec), p); err != nil {
		t.Fatalf("the test's own spec is wrong: %v\n%s", err, spec)
	}
	if p.Spec.Containers == nil {
		p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
	}
	SetDefaults(p)
	return p
}

// describe lists errors by type and path.
func describe(errs field.ErrorList) string {
	var lines []string
	for _, e := range errs {
		lines = append(lines, strings.TrimPrefix(string(e.Type), "FieldValue")+" "+e.Field)
	}
	return strings.Join(lines, "\n")
}

func runRules(t *testing.T, cases []ruleCase) {
	t.Helper()
	for _, tc := range cases {
		p := podOf(t, tc.spec)
		before := p.DeepCopy()
		errs := Validate(p)
		if diff := cmp.Diff(tc.want, describe(errs)); diff != "" {
			t.Errorf("%s\n(-want +got):\n%s%v", tc.spec, diff, errs.ToAggregate())
		}
		for _, e := range errs {
			if e.Detail == "" {
				t.Errorf("%s\n%v doesn't say what would be valid", tc.spec, e)
			}
		}
		if diff := cmp.Diff(before, p); diff != "" {
			t.Errorf("%s\nValidate changed the pod:\n%s", tc.spec, diff)
		}
	}
}

func repeat(item string, n int) string {
	return "[" + strings.Repeat(item+", ", n-1) + item + "]"
}
