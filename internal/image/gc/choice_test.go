package gc

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const gib = 1 << 30

var (
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	regular = Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}
	user    = []User{{Pod: "default/web", Container: "main", How: "ended"}}
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// image is unused for this long and known for a day longer.
func image(id string, unused time.Duration) Image {
	return Image{ID: id, Tags: []string{id + ":1"}, Size: gib, Detected: ago(unused + 24*time.Hour), Used: ago(unused)}
}

func with(i Image, change func(*Image)) Image {
	change(&i)
	return i
}

func disk(used int) Disk {
	return Disk{Path: "/images", Capacity: 100 * gib, Available: uint64(100-used) * gib}
}

func removals(list []Removal) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.ID+" "+string(r.Reason))
	}
	return out
}

func TestDecide(t *testing.T) {
	week := 7 * 24 * time.Hour
	aged := regular
	aged.MaxAge = week
	off := regular
	off.High = 100
	three := []Image{image("new", time.Hour), image("old", 3*time.Hour), image("older", 5*time.Hour)}
	for name, c := range map[string]struct {
		policy  Policy
		extent  extent
		images  []Image
		disks   []Disk
		want    []string
		spares  []string
		missing uint64
		kept    map[string]string // part of why, by ID
	}{
		"below the threshold nothing goes":                {policy: regular, images: three, disks: []Disk{disk(84)}, kept: map[string]string{"old": "space"}},
		"no disk known, nothing goes":                     {policy: regular, images: three},
		"at the threshold, down to the low one":           {policy: regular, images: three, disks: []Disk{disk(85)}, missing: 5 * gib, want: []string{"older space", "old space", "new space"}},
		"no more than is needed":                          {policy: Policy{High: 85, Low: 83}, images: three, disks: []Disk{disk(85)}, missing: 2 * gib, want: []string{"older space", "old space"}, spares: []string{"new space"}},
		"100 turns it off":                                {policy: off, images: three, disks: []Disk{disk(100)}},
		"the fullest disk counts":                         {policy: regular, images: three, disks: []Disk{disk(10), disk(86)}, missing: 6 * gib, want: []string{"older space", "old space", "new space"}},
		"never used before used, then as they were found": {policy: Policy{High: 85, Low: 84}, disks: []Disk{disk(86)}, missing: 2 * gib, images: []Image{image("used", 99*time.Hour), with(image("second", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, ago(time.Hour) }), with(image("first", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, ago(2*time.Hour) })}, want: []string{"first space", "second space"}, spares: []string{"used space"}},
		"in use and pinned ones stay, young ones too": {policy: regular, disks: []Disk{disk(99)}, missing: 19 * gib, images: []Image{
			with(image("used", week), func(i *Image) { i.Users = user }), with(image("pinned", week), func(i *Image) { i.Pinned = "pinned" }),
			with(image("young", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, ago(2*time.Minute-1) }), with(image("oldEnough", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, ago(2*time.Minute) })},
			want: []string{"oldEnough space"}, kept: map[string]string{"used": "in use by container main of pod default/web (ended)", "pinned": "pinned", "young": "imageMinimumGCAge"}},
		"age alone":                            {policy: aged, images: []Image{image("week", week), image("over", week+1), with(image("neverUsed", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, ago(week+2) })}, disks: []Disk{disk(1)}, want: []string{"neverUsed age", "over age"}},
		"age works with thresholds off":        {policy: Policy{High: 100, Low: 80, MaxAge: week}, images: []Image{image("over", 2*week)}, want: []string{"over age"}},
		"what goes by age counts for space":    {policy: aged, images: append([]Image{image("a", 2*week), image("b", 3*week)}, three...), disks: []Disk{disk(85)}, missing: 5 * gib, want: []string{"b age", "a age", "older space", "old space", "new space"}},
		"one new to the node is not too old":   {policy: aged, images: []Image{with(image("new", 0), func(i *Image) { i.Used, i.Detected = ago(3*week), ago(time.Hour) })}},
		"pressure takes all but the young":     {policy: regular, extent: pressureRun, images: append([]Image{with(image("young", 0), func(i *Image) { i.Detected = now })}, three...), want: []string{"older space", "old space", "new space"}, kept: map[string]string{"young": "Minimum"}},
		"by hand the young too":                {policy: regular, extent: byHandRun, images: []Image{with(image("young", 0), func(i *Image) { i.Used, i.Detected = time.Time{}, now }), with(image("used", 0), func(i *Image) { i.Users = user })}, want: []string{"young asked"}, kept: map[string]string{"used": "in use"}},
		"times in the future are no great age": {policy: Policy{High: 100, MaxAge: time.Hour}, images: []Image{with(image("a", 0), func(i *Image) { i.Used, i.Detected = ago(-week), ago(-week) })}, kept: map[string]string{"a": "unused for 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(facts{Now: now, Extent: c.extent, Policy: c.policy, Images: c.images, Disks: c.disks})
			if diff := cmp.Diff(c.want, removals(p.Removals)); diff != "" {
				t.Errorf("removals (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.spares, removals(p.Fallback)); diff != "" {
				t.Errorf("spares (-want +got):\n%s", diff)
			}
			if p.Missing != c.missing {
				t.Errorf("missing %d, want %d", p.Missing, c.missing)
			}
			for id, part := range c.kept {
				n := slices.IndexFunc(p.Retained, func(k Retained) bool { return k.ID == id })
				if n < 0 || !strings.Contains(p.Retained[n].Why, part) {
					t.Errorf("kept %+v; want %s for %q", p.Retained, id, part)
				}
			}
		})
	}
}

func TestDisk(t *testing.T) {
	for _, c := range []struct {
		capacity, available uint64
		low, used           int
		missing             uint64
	}{
		{100, 20, 80, 80, 0}, {100, 19, 80, 81, 1}, {1000, 199, 80, 81, 1}, {1000, 200, 80, 80, 0},
		{0, 0, 80, 0, 0}, {7, 7, 0, 0, 0}, {7, 9, 80, 0, 0}, {7, 0, 0, 100, 7}, {7, 0, 100, 100, 0},
		{math.MaxUint64, 0, 50, 100, math.MaxUint64 / 2}, {math.MaxUint64, math.MaxUint64, 0, 0, 0}, {math.MaxUint64, 1, 0, 100, math.MaxUint64 - 1},
	} {
		d := Disk{Capacity: c.capacity, Available: c.available}
		if got := d.Used(); got != c.used {
			t.Errorf("%+v: %d%% used, want %d", d, got, c.used)
		}
		if got := (Policy{Low: c.low}).Missing(d); got != c.missing {
			t.Errorf("%+v: missing %d, want %d", d, got, c.missing)
		}
	}
}

func TestStricter(t *testing.T) {
	p := Policy{High: 85, Low: 80, MinAge: time.Minute, MaxAge: time.Hour}
	change := func(f func(*Policy)) Policy {
		q := p
		f(&q)
		return q
	}
	for name, c := range map[string]struct {
		next Policy
		// now and before say which of the two is stricter.
		now, before bool
	}{
		"same":   {p, false, false},
		"high":   {change(func(p *Policy) { p.High-- }), true, false},
		"low":    {change(func(p *Policy) { p.Low-- }), true, false},
		"minAge": {change(func(p *Policy) { p.MinAge = 0 }), true, false},
		"maxAge": {change(func(p *Policy) { p.MaxAge-- }), true, false},
		"no age": {change(func(p *Policy) { p.MaxAge = 0 }), false, true},
		"both":   {change(func(p *Policy) { p.High, p.Low = p.High-1, p.Low+1 }), true, true},
	} {
		if now, before := c.next.StricterThan(p), p.StricterThan(c.next); now != c.now || before != c.before {
			t.Errorf("%s: stricter now %v, before %v", name, now, before)
		}
	}
}

func TestWords(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 5 << 30: "5.0 GiB", math.MaxUint64: "16.0 EiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	many := []User{{Pod: "b"}, {Pod: "a", Container: "c", How: "ended"}, {Pod: "b"}, {Pod: "x"}, {Pod: "y"}}
	if got, want := listUsers(many), "container c of pod a (ended), pod b and 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := listUsers([]User{{How: "a pull by hand"}}), "a pull by hand"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, i := range map[string]Image{"t": {ID: "i", Tags: []string{"t"}, Digests: []string{"d"}}, "d": {ID: "i", Digests: []string{"d"}}, "i": {ID: "i"}} {
		if got := i.Name(); got != want {
			t.Errorf("name %q, want %q", got, want)
		}
	}
}

func anyFacts() *rapid.Generator[facts] {
	times := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.IntRange(0, 4).Draw(t, "never") == 0 {
			return time.Time{}
		}
		return now.Add(-time.Duration(rapid.IntRange(-5, 60).Draw(t, "minutes")) * time.Minute)
	})
	return rapid.Custom(func(t *rapid.T) facts {
		f := facts{Now: now, Extent: extent(rapid.IntRange(0, 2).Draw(t, "extent"))}
		f.Policy.Low = rapid.IntRange(0, 99).Draw(t, "low")
		f.Policy.High = rapid.IntRange(f.Policy.Low+1, 100).Draw(t, "high")
		f.Policy.MinAge = time.Duration(rapid.IntRange(0, 20).Draw(t, "min")) * time.Minute
		f.Policy.MaxAge = time.Duration(rapid.IntRange(0, 40).Draw(t, "max")) * time.Minute
		for n := range rapid.IntRange(0, 8).Draw(t, "images") {
			i := Image{ID: fmt.Sprint(n), Size: uint64(rapid.IntRange(0, 50).Draw(t, "size")), Detected: times.Draw(t, "detected"), Used: times.Draw(t, "used")}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				i.Users = user
			case 1:
				i.Pinned = "pinned"
			}
			f.Images = append(f.Images, i)
		}
		for range rapid.IntRange(0, 2).Draw(t, "disks") {
			d := Disk{Path: "/d", Capacity: uint64(rapid.IntRange(1, 200).Draw(t, "capacity"))}
			d.Available = uint64(rapid.IntRange(0, int(d.Capacity)).Draw(t, "available"))
			f.Disks = append(f.Disks, d)
		}
		return f
	})
}

// What must hold whatever the facts are.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts().Draw(t, "facts")
		p := decide(f)
		seen := map[string]int{}
		for _, k := range p.Retained {
			seen[k.ID]++
			if k.Why == "" {
				t.Errorf("image %s is kept for no reason", k.ID)
			}
		}
		var freed, bySpace uint64
		var last Removal
		for n, r := range slices.Concat(p.Removals, p.Fallback) {
			seen[r.ID]++
			if len(r.Users) > 0 || r.Pinned != "" {
				t.Errorf("image %s is in use or pinned, but goes", r.ID)
			}
			if age := now.Sub(r.Detected); f.Extent != byHandRun && !r.Detected.IsZero() && max(age, 0) < f.Policy.MinAge {
				t.Errorf("image %s is %s old, but goes", r.ID, age)
			}
			if r.Why == "" || f.Extent == byHandRun != (r.Reason == Asked) {
				t.Errorf("image %s goes for %q, %q", r.ID, r.Reason, r.Why)
			}
			if n > 0 && last.Reason == r.Reason && (last.Used.After(r.Used) || last.Used.Equal(r.Used) && last.Detected.After(r.Detected)) {
				t.Errorf("image %s goes before %s", last.ID, r.ID)
			}
			last = r
			if n < len(p.Removals) {
				if f.Extent == regularRun && r.Reason == Space && freed >= p.Missing {
					t.Errorf("image %s goes though %d of %d bytes were free by then", r.ID, freed, p.Missing)
				}
				freed += r.Size
			}
			if r.Reason == Space {
				bySpace++
			}
			if r.Reason == Age && f.Policy.MaxAge == 0 {
				t.Errorf("image %s goes for age though no age is too great", r.ID)
			}
		}
		for _, i := range f.Images {
			if seen[i.ID] != 1 {
				t.Errorf("image %s is told of %d times", i.ID, seen[i.ID])
			}
		}
		if p.Freed != freed || freed < p.Missing && len(p.Fallback) > 0 {
			t.Errorf("frees %d (says %d) of %d with %d to spare", freed, p.Freed, p.Missing, len(p.Fallback))
		}
		full := slices.ContainsFunc(f.Disks, f.Policy.Full)
		if f.Extent == regularRun && !full && (bySpace > 0 || p.Missing > 0) {
			t.Errorf("%d images go for space, %d missing; no disk is full", bySpace, p.Missing)
		}
	})
}
