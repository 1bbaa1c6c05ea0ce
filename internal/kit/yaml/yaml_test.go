package yaml_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

func TestParse(t *testing.T) {
	nodes, err := yaml.Parse([]byte("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n"), 1, 10)
	if err != nil || len(nodes) != 2 {
		t.Fatalf("%d documents, error %v; want 2", len(nodes), err)
	}
	if nodes[0].Line != 2 || nodes[1].Line != 7 {
		t.Errorf("the documents begin in lines %d and %d, want 2 and 7", nodes[0].Line, nodes[1].Line)
	}
	if nodes, err = yaml.Parse([]byte("a: 1\n---\nb: 2\n"), 1, 1); err != nil || len(nodes) != 1 {
		t.Errorf("%d documents, error %v; want the first one only", len(nodes), err)
	}
}

func TestParseErrorHasALineAndWhatCameBefore(t *testing.T) {
	nodes, err := yaml.Parse([]byte("a: 1\n---\nb: [\n"), 1, 10)
	if err == nil || len(nodes) != 1 {
		t.Fatalf("%d documents, error %v; want one of each", len(nodes), err)
	}
	const want = "line 3: it can't be read as YAML: did not find expected node content"
	if err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
}

// A piece of a file has the file's lines, whatever language it is in.
func TestLinesCountFromTheFirst(t *testing.T) {
	for _, text := range []string{"\na: 1\nb: [2]\n", "\n{\"a\": 1,\n\"b\": [2]}"} {
		nodes, err := yaml.Parse([]byte(text), 11, 10)
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%d documents, error %v", len(nodes), err)
		}
		if first, second := nodes[0].Line, yaml.LineOf(nodes[0], "b[0]"); first != 12 || second != 13 {
			t.Errorf("%q begins in line %d and its second field is in line %d, want 12 and 13", text, first, second)
		}
	}
	if _, err := yaml.Parse([]byte("a: 1\nb: [\n"), 11, 10); err == nil || err.Line != 12 {
		t.Errorf("the error is %v, want one in line 12", err)
	}
}

func TestErrorLeavesOutWhatIsUnknown(t *testing.T) {
	for want, e := range map[string]yaml.Error{
		"line 12: spec.containers[0]: m": {Line: 12, Path: "spec.containers[0]", Message: "m"},
		"spec: m":                        {Path: "spec", Message: "m"},
		"line 3: m":                      {Line: 3, Message: "m"},
		"m":                              {Message: "m"},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}

func TestFieldFollowsAliases(t *testing.T) {
	nodes, err := yaml.Parse([]byte("x: &x\n  y: 1\nz: *x\n"), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, z := yaml.Field(nodes[0], "z")
	key, value := yaml.Field(z, "y")
	if key == nil || key.Line != 2 || value.Value != "1" {
		t.Errorf("z.y is %v: %v", key, value)
	}
	if key, value := yaml.Field(value, "y"); key != nil || value != nil {
		t.Error("a scalar has a field")
	}
	if key, value := yaml.Field(nil, "y"); key != nil || value != nil {
		t.Error("nothing has a field")
	}
}
