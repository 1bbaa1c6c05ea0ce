package yaml_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// terse says of mistakes what they are, in as few words as possible.
type terse struct {
	told []string
	most int
}

func (r *terse) Fail(n *yaml.Node, path, message string) bool {
	r.told = append(r.told, fmt.Sprintf("%d %s: %s", n.Line, path, message))
	return r.most == 0 || len(r.told) < r.most
}

func (*terse) Misfit(_ string, n *yaml.Node, m yaml.Misfit) string {
	switch {
	case m.Type == nil:
		return "no object"
	case m.Err != nil:
		return "not " + m.Type.Name() + ", " + m.Err.Error()
	case m.Why != "":
		return n.Value + " " + m.Why
	}
	return "not " + m.Type.String()
}
func (*terse) Unknown(meant string) string { return "unknown, " + meant }
func (*terse) Twice(line int) string       { return fmt.Sprintf("twice, %d", line) }
func (*terse) Name(_ string, key *yaml.Node) string {
	if key.Value == "bad" {
		return "bad name"
	}
	return ""
}

type even int

func (e *even) UnmarshalJSON(b []byte) error {
	if _, err := fmt.Sscan(string(b), (*int)(e)); err != nil || *e%2 != 0 {
		return errors.New("odd")
	}
	return nil
}

type inner struct {
	Small int32   `json:"small"`
	Count uint32  `json:"count"`
	Part  float64 `json:"part"`
}

type outer struct {
	Inner
	Name  string            `json:"name"`
	Flag  *bool             `json:"flag"`
	List  []inner           `json:"list"`
	Map   map[string]string `json:"map"`
	Bytes []byte            `json:"bytes"`
	Even  even              `json:"even"`
	Any   any               `json:"any"`
	Node  yaml.Node         `json:"node"`
}

type Inner struct {
	Below string `json:"below"`
}

func decode(t *testing.T, text string, d yaml.Decoder, into any) (told []string, failed bool) {
	t.Helper()
	nodes, err := yaml.Parse([]byte(text), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d.Rules == nil {
		d.Rules = &terse{}
	}
	d.AliasBudget = yaml.MaxAliasCost
	d.Decode(nodes[0], into)
	return d.Rules.(*terse).told, d.Failed
}

func TestDecode(t *testing.T) {
	var got outer
	told, failed := decode(t, `
below: a
name: "yes"
flag: yes
list: [{small: 0x10, count: 3, part: 2}, {small: 1e2, part: .5}]
map: {a: 2001-01-01, b: null}
bytes: aGk=
even: 4
any: {a: [1, x, 1.5, true, null]}
`, yaml.Decoder{}, &got)
	if len(told) > 0 || failed {
		t.Fatal(told)
	}
	flag := true
	want := outer{
		Inner: Inner{"a"}, Name: "yes", Flag: &flag, List: []inner{{16, 3, 2}, {100, 0, .5}},
		Map: map[string]string{"a": "2001-01-01", "b": ""}, Bytes: []byte("hi"), Even: 4,
		Any: map[string]any{"a": []any{int64(1), "x", 1.5, true, nil}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeReportsEachMistake(t *testing.T) {
	for text, want := range map[string]string{
		"name: 5":                     "1 name: not string",
		"flag: \"yes\"":               "1 flag: not bool",
		"list: {}":                    "1 list: not []yaml_test.inner",
		"list: [x, {small: x}]":       "1 list[0]: not yaml_test.inner|1 list[1].small: not int32",
		"list: [{small: 4294967296}]": "1 list[0].small: 4294967296 is too large for this field (32 bits)",
		"list: [{count: -1}]":         "1 list[0].count: -1 is too large for this field (32 bits)",
		"list: [{small: 1.5}]":        "1 list[0].small: 1.5 is not an integer",
		"list: [{part: .nan}]":        "1 list[0].part: .nan is not a number",
		"map: {a: 1, bad: x}":         "1 map[a]: not string|1 map: bad name",
		"bytes: '!'":                  "1 bytes: not , illegal base64 data at input byte 0",
		"even: 3":                     "1 even: not even, odd",
		"even: {a: &a [*a]}":          "1 even.a[0][0]: alias *a contains itself",
		"any: !odd x":                 "1 any: not interface {}",
		"nam: x":                      "1 nam: unknown, name",
		"name: a\nname: b\nNAME: c":   "2 name: twice, 1|3 NAME: unknown, name",
		"<<: {name: a}":               "1 <<: unknown, ",
	} {
		var got outer
		told, failed := decode(t, text, yaml.Decoder{}, &got)
		if strings.Join(told, "|") != want {
			t.Errorf("%s: told %q, want %q", text, strings.Join(told, "|"), want)
		}
		if harmless := strings.Contains(want, "twice") || strings.Contains(want, "unknown") || want == ""; failed == harmless {
			t.Errorf("%s: failed is %t", text, failed)
		}
	}
	var got outer
	if told, failed := decode(t, "any: "+strings.Repeat("[", 200)+strings.Repeat("]", 200), yaml.Decoder{}, &got); len(told) != 1 || !failed {
		t.Errorf("a deep list: %q", told)
	}
}

func TestMerge(t *testing.T) {
	var got []outer
	told, _ := decode(t, "- &a {name: a, below: x}\n- {<<: *a, name: b}\n- {name: c, <<: [{name: d}, *a]}\n- {<<: 5}\n- &s {<<: *s}\n", yaml.Decoder{Merge: true}, &got)
	if want := []string{"4 [3]: no object", "5 [4]: alias *s contains itself"}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if got[1].Name != "b" || got[1].Below != "x" || got[2].Name != "c" || got[2].Below != "x" {
		t.Errorf("got %+v", got)
	}
}

// places notes what an overlay is told.
type places []string

func (p *places) Given(path string, key *yaml.Node, part bool) {
	*p = append(*p, fmt.Sprintf("%s %d %t", path, key.Line, part))
}
func (p *places) Forget(path string) { *p = append(*p, "no "+path) }

func TestOverlay(t *testing.T) {
	flag := false
	got := outer{Name: "old", Flag: &flag, List: []inner{{1, 2, 3}}, Map: map[string]string{"a": "1", "b": "2"}}
	var told places
	if wrong, _ := decode(t, "flag: true\nlist:\n- {count: 5}\nmap: {a: null, c: '3'}\nname: null\n", yaml.Decoder{Overlay: &told}, &got); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	if got.Name != "" || !*got.Flag || flag || !reflect.DeepEqual(got.List, []inner{{Count: 5}}) || !reflect.DeepEqual(got.Map, map[string]string{"b": "2", "c": "3"}) {
		t.Errorf("got %+v, and %t in what was there", got, flag)
	}
	want := places{"flag 1 false", "no list", "list 2 false", "list[0] 3 false", "list[0].count 3 false", "map 4 true", "no map[a]", "map[c] 4 false", "no name"}
	if !reflect.DeepEqual(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestReadingIsBounded(t *testing.T) {
	bomb := "a0: &a0 [x]\n"
	for i := range 30 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
	}
	var got map[string]any
	if told, failed := decode(t, bomb, yaml.Decoder{Rules: &terse{most: 3}}, &got); len(told) != 3 || !failed || !strings.Contains(told[0], "expand to too much text") {
		t.Errorf("a bomb: %q", told)
	}
	var list []int
	told, _ := decode(t, "[1, 2, 3, 4]", yaml.Decoder{MaxValues: 3}, &list)
	if len(told) != 1 || !strings.Contains(told[0], "[2]: there are more than 3 values") || len(list) != 3 {
		t.Errorf("many values: %q, %v", told, list)
	}
}

func TestNodesStayUnread(t *testing.T) {
	var got outer
	if told, _ := decode(t, "node: [a, {b: !odd c}]\n", yaml.Decoder{}, &got); len(told) > 0 || len(got.Node.Content) != 2 {
		t.Errorf("told %q, got %+v", told, got.Node)
	}
}

func TestLineOf(t *testing.T) {
	nodes, err := yaml.Parse([]byte("a:\n  b: [x,\n   {c.d: 1}]\n"), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"": 0, "z": 0, "a": 1, "a.z": 1, "a.b[1]": 3, "a.b[7]": 2, "a.b[1][c.d]": 3, "a.b[x": 2} {
		if got := yaml.LineOf(nodes[0], path); got != want {
			t.Errorf("LineOf(%q) = %d, want %d", path, got, want)
		}
	}
	if yaml.Text(nodes[0], "a", "b") != "" || yaml.Text(nodes[0], "a", "z", "y") != "" || yaml.Text(nil) != "" {
		t.Error("a text where there is none")
	}
}

// TestLargeNumbersInJSON: a fraction may be written as an integer that is larger than any that can be computed with.
func TestLargeNumbersInJSON(t *testing.T) {
	for text, want := range map[string]float64{"9223372036854775807": 1 << 63, "9223372036854776000": 1 << 63, "18446744073709551615": 1 << 64, "100000000000000000000": 1e20, "-9223372036854777856": -9223372036854777856, "1e3": 1000} {
		var got outer
		if told, failed := decode(t, `{"list":[{"part":`+text+`}]}`, yaml.Decoder{}, &got); failed || len(told) > 0 || got.List[0].Part != want {
			t.Errorf("%s: %v %v", text, got.List, told)
		}
	}
}
