package words_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
)

var base = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type inner struct {
	Secret string
	N      int8
	Deep   *inner `json:"deep,omitempty"`
}

type embedded struct{ Kind string }

type item struct {
	embedded
	ID   string
	OK   bool
	Tags []string
}

type all struct {
	Name     string
	At       time.Time
	API      metav1.Time `json:"api"`
	For      time.Duration
	Maybe    *bool
	Grace    *time.Duration
	U        uint16
	Inside   inner
	Pointed  *inner
	Same     *inner
	Quantity resource.Quantity
	Labels   map[string]string
	Times    []time.Time
	Structs  []inner
	Items    []item
	Ignored  string `json:"-"`
}

type holder struct {
	All  *all
	Flag bool
	More []item
}

func types() *words.Types {
	return words.NewTypes(map[reflect.Type]words.Shape{
		reflect.TypeFor[all]():    {Lists: map[string]string{"Items": "item"}, DropKey: map[string]string{"Labels": "no"}},
		reflect.TypeFor[holder](): {Lists: map[string]string{"More": "extra"}},
		reflect.TypeFor[item]():   {Head: []string{"ID", "Kind"}},
		reflect.TypeFor[inner]():  {Hidden: []string{"Secret"}},
	}, reflect.TypeFor[holder]())
}

// TestLook: how values look.
func TestLook(t *testing.T) {
	ts := types()
	yes, grace := true, time.Duration(0)
	p := &inner{N: 1}
	v := all{Name: "a b", At: base.Add(-time.Second), API: metav1.NewTime(base.Add(1500 * time.Millisecond)), For: time.Minute, Maybe: &yes, Grace: &grace, U: 7,
		Inside: inner{Secret: "sesame", Deep: &inner{}}, Pointed: p, Same: p, Quantity: resource.MustParse("100m"),
		Labels: map[string]string{"b": "x y", "no": "sesame", "a": ""}, Times: []time.Time{base, base.AddDate(-50, 0, 0)}, Structs: []inner{{N: 1}, {Secret: "sesame"}}}
	got := string(ts.Type(reflect.TypeFor[all]()).AppendFields(nil, words.At(&v), words.Value{}, base))
	want := ` name="a b" at=-1s api=+1.5s for=1m0s maybe=true grace=0s u=7 inside.secret="(hidden)" inside.deep={} pointed.n=1 same=@pointed quantity="100m"` +
		` labels={"a":"","b":"x y"} times=[+0s,1976-01-01T00:00:00Z] structs=[{"n":1},{"secret":"(hidden)"}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back all
	list, err := words.Split(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := ts.Type(reflect.TypeFor[all]()).Set(words.At(&back), list, base); err != nil {
		t.Fatal(err)
	}
	if back.Same != back.Pointed || back.Inside.Deep == nil || !back.Times[1].Equal(v.Times[1]) || !back.API.Time.Equal(v.API.Time) {
		t.Errorf("came back as %+v", back)
	}
}

// TestChanges: one holder becomes another by the lines that say how they differ.
func TestChanges(t *testing.T) {
	ty := types().Type(reflect.TypeFor[holder]())
	rapid.Check(t, func(rt *rapid.T) {
		var have holder
		for range 3 {
			want := drawHolder(rt)
			var text []byte
			for _, f := range ty.Fields() {
				text = f.AppendChanges(text, "", f.Of(words.At(&want)), f.Of(words.At(&have)), base)
			}
			before := have
			for line := range strings.Lines(string(text)) {
				list, err := words.Split(strings.TrimSuffix(line, "\n"))
				if err == nil {
					err = ty.Apply(words.At(&have), list, base)
				}
				if err != nil {
					rt.Fatalf("%s: %v", line, err)
				}
			}
			if before.All != nil && before.All == have.All && len(text) > 0 && strings.Contains(string(text), "all ") {
				rt.Fatal("what the holder pointed to before was changed")
			}
			if diff := cmp.Diff(want, have, cmpopts.EquateEmpty(), cmp.AllowUnexported(item{}), cmpopts.EquateComparable(resource.Quantity{})); diff != "" {
				rt.Fatalf("by\n%s\nit became another: %s", text, diff)
			}
			if !ty.Equal(words.At(&want), words.At(&have)) {
				rt.Fatalf("equal isn't found to be so: %+v, %+v", want, have)
			}
			if (len(text) == 0) != ty.Equal(words.At(&want), words.At(&before)) {
				rt.Fatalf("%q made %+v, want %+v", text, before, want)
			}
		}
	})
}

func drawHolder(rt *rapid.T) (h holder) {
	items := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) item {
		return item{ID: rapid.SampledFrom([]string{"a", "b", "", "oK", "ok", "x=y"}).Draw(rt, "id"), embedded: embedded{rapid.SampledFrom([]string{"", "k", "ok"}).Draw(rt, "kind")},
			OK: rapid.Bool().Draw(rt, "ok"), Tags: rapid.SliceOfN(rapid.SampledFrom([]string{"", "t", "a,b", "]"}), 0, 2).Draw(rt, "tags")}
	}), 0, 5, func(i item) [2]string { return [2]string{i.ID, i.Kind} })
	h.Flag, h.More = rapid.Bool().Draw(rt, "flag"), items.Draw(rt, "more")
	if rapid.Bool().Draw(rt, "all") {
		h.All = &all{Name: rapid.SampledFrom([]string{"", "-", "n", "@pointed"}).Draw(rt, "name"), Items: items.Draw(rt, "items")}
		if rapid.Bool().Draw(rt, "pointed") {
			h.All.Pointed = &inner{N: int8(rapid.IntRange(-128, 127).Draw(rt, "n"))}
		}
	}
	return h
}

// TestJSON: API types come back from JSON, with times to the nanosecond, and all of them can be planned.
func TestJSON(t *testing.T) {
	ty := words.NewTypes(nil, reflect.TypeFor[v1.Pod]()).Type(reflect.TypeFor[v1.Pod]())
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "grüße \"x\"", CreationTimestamp: metav1.NewTime(base.Add(1))}}
	p.Spec.Containers = []v1.Container{{Name: "a", Env: []v1.EnvVar{{Name: "X", Value: "<y>\n"}},
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": resource.MustParse("1500m")}}}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}, TargetContainerName: "a"}}
	text := ty.AppendJSON(nil, words.At(&p))
	var back v1.Pod
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if diff := cmp.Diff(p, back, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Errorf("%s came back otherwise: %s", text, diff)
	}
	if strings.ContainsAny(string(text), "\n") {
		t.Errorf("more than one line: %s", text)
	}
}
