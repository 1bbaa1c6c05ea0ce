package containergc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	run, exit, created, unknown = pod.ContainerRunning, pod.ContainerExited, pod.ContainerCreated, pod.ContainerUnknown
)

// inst is an instance of a container: p/main/3 ended 10 minutes ago, say.
func inst(uid, name string, attempt int, state pod.ContainerState, ago time.Duration) pod.Container {
	c := pod.Container{ID: fmt.Sprintf("%s/%s/%d", uid, name, attempt), Name: name, Attempt: attempt, State: state, CreatedAt: now.Add(-ago - time.Hour)}
	if c.Ended() {
		c.FinishedAt = now.Add(-ago)
	}
	return c
}

// crashed are instances that ended, the newest a minute ago, the others a minute earlier each.
func crashed(uid string, name string, count int) *pod.Observed {
	o := &pod.Observed{UID: types.UID(uid)}
	for n := range count {
		o.Containers = append(o.Containers, inst(uid, name, count-1-n, exit, time.Duration(n+1)*time.Minute))
	}
	return o
}

// chosen lists what goes of all pods.
func chosen(c Choice) []string {
	var all []string
	for _, ids := range c.Pods {
		all = append(all, ids...)
	}
	slices.Sort(all)
	return all
}

func TestWhatMayGo(t *testing.T) {
	const m = time.Minute
	for name, c := range map[string]struct {
		minAge     time.Duration
		containers []pod.Container
		want       []string
		next       time.Duration
		over       int
	}{
		"nothing":                       {},
		"the newest stays":              {containers: []pod.Container{inst("p", "a", 0, exit, m), inst("p", "b", 7, unknown, m)}, over: 2},
		"its predecessors don't":        {containers: []pod.Container{inst("p", "a", 2, run, 0), inst("p", "a", 1, unknown, m), inst("p", "a", 0, exit, 2*m), inst("p", "b", 1, exit, m), inst("p", "b", 0, exit, m)}, want: []string{"p/a/0", "p/a/1", "p/b/0"}, over: 1},
		"names may be mixed":            {containers: []pod.Container{inst("p", "a", 1, exit, m), inst("p", "b", 0, exit, m), inst("p", "a", 0, exit, m)}, want: []string{"p/a/0"}, over: 2},
		"an old one that runs stays":    {containers: []pod.Container{inst("p", "a", 2, run, 0), inst("p", "a", 1, run, m), inst("p", "a", 0, exit, m)}, want: []string{"p/a/0"}},
		"one that never ran isn't dead": {containers: []pod.Container{inst("p", "a", 2, run, 0), inst("p", "a", 1, created, m), inst("p", "a", 0, exit, m)}, want: []string{"p/a/0"}},
		"a newest that never ran":       {containers: []pod.Container{inst("p", "a", 1, created, 0), inst("p", "a", 0, exit, m)}, want: []string{"p/a/0"}},
		"young ones wait":               {minAge: 3 * m, containers: []pod.Container{inst("p", "a", 4, run, 0), inst("p", "a", 3, exit, m), inst("p", "a", 2, exit, 2*m), inst("p", "a", 1, exit, 3*m)}, want: []string{"p/a/1"}, next: m, over: 2},
		"an end in the future is young": {minAge: 3 * m, containers: []pod.Container{inst("p", "a", 1, run, 0), inst("p", "a", 0, exit, -m)}, next: 4 * m, over: 1},
		"unless no age is asked for":    {containers: []pod.Container{inst("p", "a", 1, run, 0), inst("p", "a", 0, exit, -m)}, want: []string{"p/a/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Choose([]*pod.Observed{{UID: "p", Containers: c.containers}}, Limits{MinAge: c.minAge}, now, nil)
			if diff := cmp.Diff(c.want, got.Pods["p"]); diff != "" || got.Over != c.over {
				t.Errorf("over %d, want %d (-want +got):\n%s", got.Over, c.over, diff)
			}
			var want time.Time
			if c.next > 0 {
				want = now.Add(c.next)
			}
			if !got.Next.Equal(want) {
				t.Errorf("next %s, want %s", got.Next, want)
			}
		})
	}
}

func TestChooseSpreadsEvenly(t *testing.T) {
	pods := []*pod.Observed{crashed("p", "a", 5), crashed("q", "b", 3), crashed("r", "c", 1)}
	for _, c := range []struct {
		total int
		want  []string
		over  int
	}{
		{total: -1},
		{total: 9},
		{total: 8, want: []string{"p/a/0"}},
		{total: 7, want: []string{"p/a/0", "p/a/1"}},
		{total: 6, want: []string{"p/a/0", "p/a/1", "p/a/2"}}, // as old as q/b/0; the lesser ID
		{total: 5, want: []string{"p/a/0", "p/a/1", "p/a/2", "q/b/0"}},
		{total: 0, want: []string{"p/a/0", "p/a/1", "p/a/2", "p/a/3", "q/b/0", "q/b/1"}, over: 3},
	} {
		got := Choose(pods, Limits{Total: c.total}, now, nil)
		if diff := cmp.Diff(c.want, chosen(got)); diff != "" || got.Over != c.over || !got.Next.IsZero() {
			t.Errorf("%d: over %d, next %s; excess (-want +got):\n%s", c.total, got.Over, got.Next, diff)
		}
	}
}

func TestChooseWaitsForTheYoung(t *testing.T) {
	o := crashed("p", "a", 4) // ended 1 to 4 minutes ago
	l := Limits{Total: 1, MinAge: 3*time.Minute + time.Second}
	got := Choose([]*pod.Observed{o}, l, now, nil)
	if diff := cmp.Diff([]string{"p/a/0"}, got.Pods["p"]); diff != "" || got.Over != 2 || !got.Next.Equal(now.Add(time.Second)) {
		t.Errorf("over %d, next %s (-want +got):\n%s", got.Over, got.Next, diff)
	}
	got = Choose([]*pod.Observed{o}, l, got.Next, nil)
	if diff := cmp.Diff([]string{"p/a/0", "p/a/1"}, got.Pods["p"]); diff != "" || !got.Next.Equal(now.Add(time.Minute+time.Second)) {
		t.Errorf("a second later: next %s (-want +got):\n%s", got.Next, diff)
	}
}

func anyPods() *rapid.Generator[[]*pod.Observed] {
	states := rapid.SampledFrom([]pod.ContainerState{created, run, exit, exit, unknown})
	return rapid.Custom(func(t *rapid.T) []*pod.Observed {
		var pods []*pod.Observed
		for n := range rapid.IntRange(0, 4).Draw(t, "pods") {
			o := &pod.Observed{UID: types.UID(fmt.Sprint("p", n))}
			for _, name := range []string{"a", "b"} {
				count := rapid.IntRange(0, 5).Draw(t, "instances")
				for a := range count {
					ago := time.Duration(rapid.IntRange(-2, 20).Draw(t, "ago")) * time.Minute
					o.Containers = append(o.Containers, inst(string(o.UID), name, count-1-a, states.Draw(t, "state"), ago))
				}
			}
			pods = append(pods, o)
		}
		return pods
	})
}

// fact is what the laws are about: one instance, and what becomes of it.
type fact struct {
	pod.Container
	newer       int
	young, goes bool
}

func facts(pods []*pod.Observed, l Limits, c Choice) []fact {
	var all []fact
	for _, o := range pods {
		newer := map[string]int{}
		for _, i := range o.Containers {
			all = append(all, fact{Container: i, newer: newer[i.Name], goes: slices.Contains(c.Pods[o.UID], i.ID),
				young: i.Ended() && l.MinAge > 0 && now.Sub(i.FinishedAt) < l.MinAge})
			newer[i.Name]++
		}
	}
	return all
}

// What must hold whatever the runtime has.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := anyPods().Draw(t, "pods")
		l := Limits{Total: rapid.IntRange(-1, 12).Draw(t, "total"), MinAge: time.Duration(rapid.IntRange(0, 10).Draw(t, "age")) * time.Minute}
		got := Choose(pods, l, now, nil)
		dead, gone, young, idle := 0, 0, 0, 0
		all := facts(pods, l, got)
		for _, f := range all {
			if f.goes && (!f.Ended() || f.newer == 0 || f.young) {
				t.Errorf("%s goes: it is %s, %d are newer, young: %t", f.ID, f.State, f.newer, f.young)
			}
			switch {
			case !f.Ended():
				continue
			case f.goes:
				gone++
			case f.newer > 0 && f.young:
				young++
			case f.newer > 0:
				idle++
			}
			dead++
		}
		if listed := len(chosen(got)); listed != gone {
			t.Errorf("%d go, but %d are of these pods", listed, gone)
		}
		for uid, ids := range got.Pods {
			if len(ids) == 0 || !slices.IsSorted(ids) {
				t.Errorf("of %s go %q", uid, ids)
			}
		}
		switch left := dead - gone; {
		case l.Total < 0:
			if gone+got.Over > 0 || !got.Next.IsZero() {
				t.Errorf("%+v without a limit", got)
			}
		case got.Over != max(left-l.Total, 0):
			t.Errorf("says %d over the limit, is %d", got.Over, left-l.Total)
		case gone > 0 && left < l.Total:
			t.Errorf("only %d are left of %d", left, l.Total)
		case got.Over > 0 && young == 0 && idle > 0:
			t.Errorf("%d stay that could go while %d are too many", idle, got.Over)
		}
		if due := !got.Next.IsZero(); due != (got.Over > 0 && young > 0) || due && !got.Next.After(now) {
			t.Errorf("next look %s with %d too young, %d over", got.Next, young, got.Over)
		}
		if l.MinAge == 0 {
			lawOfEvenness(t, all)
		}
		// It doesn't depend on the order of pods, and what is excess stays so as time goes by.
		turned := slices.Clone(pods)
		slices.Reverse(turned)
		if diff := cmp.Diff(got, Choose(turned, l, now, nil)); diff != "" {
			t.Errorf("in another order (-before +after):\n%s", diff)
		}
		later := chosen(Choose(pods, l, now.Add(time.Hour), nil))
		for _, id := range chosen(got) {
			if !slices.Contains(later, id) {
				t.Errorf("%s isn't excess any more an hour later", id)
			}
		}
	})
}

// lawOfEvenness: nothing stays that has more newer ones than something that goes, or as many
// and ended earlier.
func lawOfEvenness(t *rapid.T, all []fact) {
	for _, goes := range all {
		if !goes.goes {
			continue
		}
		for _, stays := range all {
			if stays.goes || !stays.Ended() || stays.newer == 0 {
				continue
			}
			if stays.newer > goes.newer || stays.newer == goes.newer && stays.FinishedAt.Before(goes.FinishedAt) {
				t.Errorf("%s stays, %s goes", stays.ID, goes.ID)
			}
		}
	}
}

// What the limit per container removes anyway costs nobody else an instance: of those that it
// leaves, the same are chosen before it has removed the others and after.
func TestTheLimitPerContainerComesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := anyPods().Draw(t, "pods")
		l := Limits{Total: rapid.IntRange(0, 12).Draw(t, "total"), MinAge: time.Duration(rapid.IntRange(0, 10).Draw(t, "age")) * time.Minute}
		keep := rapid.IntRange(0, 3).Draw(t, "per container")
		var within []string
		rest := map[string]bool{}
		for _, f := range facts(pods, l, Choice{}) {
			rest[f.ID] = f.newer <= keep || f.young
			if f.newer <= keep {
				within = append(within, f.ID)
			}
		}
		var after []*pod.Observed
		for _, o := range pods {
			left := slices.DeleteFunc(slices.Clone(o.Containers), func(c pod.Container) bool { return !rest[c.ID] })
			after = append(after, &pod.Observed{UID: o.UID, Containers: left})
		}
		of := func(pods []*pod.Observed) []string {
			return slices.DeleteFunc(chosen(Choose(pods, l, now, nil)), func(id string) bool { return !slices.Contains(within, id) })
		}
		if before, after := of(pods), of(after); !slices.Equal(before, after) {
			t.Errorf("chosen %q before, %q after", before, after)
		}
	})
}
