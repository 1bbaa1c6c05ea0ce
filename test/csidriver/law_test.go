package main

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

const staging = "/staging"

// act is a call and its answer.
type act struct {
	step
	code      string // "" for a call that never ends, "left" for a caller that doesn't wait
	maybeLost bool
}

func staged(code string) act {
	return act{step: step{kind: stage, volume: "v", target: staging}, code: code}
}
func unstaged(code string) act {
	return act{step: step{kind: unstage, volume: "v", target: staging}, code: code}
}
func published(code string) act {
	return act{step: step{kind: publish, volume: "v", target: "/target", staging: staging}, code: code}
}
func unpublished(code string) act {
	return act{step: step{kind: unpublish, volume: "v", target: "/target"}, code: code}
}
func called(k kind) act { return act{step: step{kind: k, volume: "v", target: "/target"}, code: "OK"} }

func (a act) with(change func(*act)) act { change(&a); return a }

func otherArgs(a *act)   { a.args = "other" }
func otherTarget(a *act) { a.target = "/other" }
func otherVolume(a *act) { a.volume = "w" }

func lost(a *act) { a.maybeLost = true }

// breaks returns the rules that calls break.
func breaks(l law, acts ...act) (rules []string) {
	for i, a := range acts {
		c := driver.Call{Seq: i + 1, Code: a.code, Left: a.code == "left"}
		for _, v := range l.begin(c, a.step) {
			rules = append(rules, v.Rule)
		}
		if a.code != "" {
			l.end(c, a.step, a.maybeLost)
		}
	}
	return rules
}

// TestLaw: each rule is reported when it is broken, and only then.
func TestLaw(t *testing.T) {
	const ok, final, unsure = "OK", "InvalidArgument", "DeadlineExceeded"
	for _, c := range []struct {
		name     string
		noStage  bool
		attaches bool
		acts     []act
		want     string // the rule that the last call breaks; "" for none
	}{
		{name: "the usual way", acts: []act{staged(ok), published(ok), called(stats), called(expand), published(ok),
			published(ok).with(otherTarget), unpublished(ok).with(otherTarget), unpublished(ok), unstaged(ok),
			staged(ok).with(otherArgs)}},
		{name: "without stage", noStage: true, acts: []act{published(ok), unpublished(ok)}},
		{name: "attached", attaches: true, acts: []act{called(attach), staged(ok), unstaged(ok), called(detach)}},
		{name: "inline", acts: []act{published(ok).with(func(a *act) { a.inline = true }), unpublished(ok)}},

		// Row none.
		{name: "Publish before Stage", acts: []act{published(ok)}, want: "publish-not-staged"},
		{name: "Stage can't", noStage: true, acts: []act{staged(ok)}, want: "stage-without-capability"},
		{name: "Unstage of nothing", acts: []act{unstaged(ok)}, want: "unstage-not-staged"},
		{name: "Unstage again", acts: []act{staged(ok), unstaged(ok), unstaged(ok)}, want: "unstage-not-staged"},
		{name: "Unstage again after a lost answer", acts: []act{staged(ok), unstaged(ok).with(lost), unstaged(ok)}},
		{name: "Unstage after a final error", acts: []act{staged(final), unstaged(ok)}, want: "unstage-after-refused-stage"},
		{name: "Unstage after a final error that was lost", acts: []act{staged(final).with(lost), unstaged(ok)}},
		{name: "Publish after a final error", acts: []act{staged(final), published(ok)}, want: "publish-not-staged"},
		{name: "Stage after a final error", acts: []act{staged(final), staged(ok).with(otherArgs), published(ok)}},
		{name: "Unpublish of nothing", acts: []act{unpublished(ok)}, want: "unpublish-not-published"},
		{name: "Unpublish after a final error", acts: []act{staged(ok), published(final), unpublished(ok)},
			want: "unpublish-after-refused-publish"},
		{name: "Stats of nothing", acts: []act{called(stats)}, want: "stats-not-staged"},
		{name: "Expand of nothing", acts: []act{called(expand)}, want: "expand-not-staged"},
		{name: "not attached", attaches: true, acts: []act{staged(ok)}, want: "not-attached"},
		{name: "not attached, no stage", attaches: true, noStage: true, acts: []act{published(ok)}, want: "not-attached"},

		// Row stage-unknown.
		{name: "Stage again", acts: []act{staged(unsure), staged(ok), published(ok)}},
		{name: "the caller left", acts: []act{staged("left"), staged(ok), published(ok)}},
		{name: "Stage again, but other arguments", acts: []act{staged(unsure), staged(ok).with(otherArgs)},
			want: "stage-other-arguments"},
		{name: "Stage again, but another path", acts: []act{staged(cut), staged(ok).with(otherTarget)},
			want: "stage-other-arguments"},
		{name: "Unstage before other arguments", acts: []act{staged(killed), unstaged(ok), staged(ok).with(otherArgs)}},
		{name: "a final error doesn't undo", acts: []act{staged(unsure), staged(final), unstaged(ok)}},
		{name: "Publish after an uncertain Stage", acts: []act{staged(unsure), published(ok)}, want: "publish-not-staged"},

		// Row staged.
		{name: "Stage with other arguments", acts: []act{staged(ok), staged(ok).with(otherArgs)},
			want: "stage-other-arguments"},
		{name: "another staging path", acts: []act{staged(ok), published(ok).with(func(a *act) { a.staging = "/x" })},
			want: "publish-other-staging-path"},
		{name: "detached while staged", acts: []act{staged(ok), called(detach)}, want: "detach-while-in-use"},
		{name: "detached while maybe staged", acts: []act{staged(ok), unstaged(unsure), called(detach)},
			want: "detach-while-in-use"},

		// Row publish-unknown.
		{name: "Publish again", acts: []act{staged(ok), published(unsure), published(final), published(ok)}},
		{name: "Unpublish after an uncertain Publish", acts: []act{staged(ok), published(unsure), published(final),
			unpublished(ok)}},
		{name: "Unstage while maybe published", acts: []act{staged(ok), published(unsure), unstaged(ok)},
			want: "unstage-while-published"},
		{name: "Publish again, but other arguments", acts: []act{staged(ok), published(unsure),
			published(ok).with(otherArgs)}, want: "publish-other-arguments"},
		{name: "Stats while maybe published", noStage: true, acts: []act{published(unsure), called(stats)},
			want: "stats-not-staged"},

		// Row published.
		{name: "republish fails", acts: []act{staged(ok), published(ok), published(final), called(stats), published(unsure),
			called(stats), unpublished(ok), unstaged(ok)}},
		{name: "Unstage while published", acts: []act{staged(ok), published(ok), unstaged(ok)},
			want: "unstage-while-published"},
		{name: "Stage while published", acts: []act{staged(ok), published(ok), staged(ok)}, want: "stage-while-published"},
		{name: "another volume's target", noStage: true, acts: []act{published(ok), published(ok).with(otherVolume)},
			want: "publish-target-in-use"},
		{name: "detached while published", noStage: true, acts: []act{published(ok), called(detach)},
			want: "detach-while-in-use"},

		// Row unpublish-unknown.
		{name: "Unpublish again", acts: []act{staged(ok), published(ok), unpublished(final), unpublished(unsure),
			unpublished(ok), unstaged(ok)}},
		{name: "wanted again", acts: []act{staged(ok), published(ok), unpublished(unsure), published(ok), called(stats)}},
		{name: "Unstage while maybe unpublished", acts: []act{staged(ok), published(ok), unpublished(final), unstaged(ok)},
			want: "unstage-while-published"},

		// Row unstage-unknown.
		{name: "Unstage until it succeeds", acts: []act{staged(ok), unstaged(final), unstaged(unsure), unstaged(ok)}},
		{name: "Stage after an uncertain Unstage", acts: []act{staged(ok), unstaged(unsure), staged(ok), published(ok)}},
		{name: "Stage after a refused Unstage", acts: []act{staged(ok), unstaged(final), staged(ok), published(ok)}},
		{name: "Publish after an uncertain Unstage", acts: []act{staged(ok), unstaged(unsure), published(ok)},
			want: "publish-not-staged"},
		{name: "Publish after a refused Unstage", acts: []act{staged(ok), unstaged(final), published(ok)},
			want: "publish-not-staged"},
		{name: "other arguments after an uncertain Unstage", acts: []act{staged(ok), unstaged(unsure),
			staged(ok).with(otherArgs)}, want: "stage-other-arguments"},

		{name: "two at a time", acts: []act{staged(""), staged(ok)}, want: "overlap"},
		{name: "Publish while Stage runs", acts: []act{staged(""), published(ok)}, want: "publish-not-staged"},
		{name: "Unstage while Unpublish runs", acts: []act{staged(ok), published(ok), unpublished(""), unstaged(ok)},
			want: "unstage-while-published"},
	} {
		t.Run(c.name, func(t *testing.T) {
			capabilities := "STAGE_UNSTAGE_VOLUME"
			if c.noStage {
				capabilities = ""
			}
			before := breaks(newLaw(config{capabilities: capabilities, attach: c.attaches}), c.acts[:len(c.acts)-1]...)
			all := breaks(newLaw(config{capabilities: capabilities, attach: c.attaches}), c.acts...)
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if len(before) > 0 || !slices.Equal(all, want) {
				t.Errorf("the calls break %q, and those before the last %q; want %q", all, before, want)
			}
		})
	}
}

// TestOutcomes: the codes after which a volume may be held, and those after which it isn't.
func TestOutcomes(t *testing.T) {
	uncertainCodes := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted,
		codes.Aborted}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		want := refused
		if slices.Contains(uncertainCodes, code) {
			want = uncertain
		} else if code == codes.OK {
			want = succeeded
		}
		if got := outcomeOf(driver.Call{Code: code.String()}); got != want {
			t.Errorf("%s: outcome %d, want %d", code, got, want)
		}
	}
}

// TestLawLosses: after the end of a connection, and of the driver, something may be undone again, once.
func TestLawLosses(t *testing.T) {
	for name, lose := range map[string]func(*law){
		"another connection": func(l *law) { l.entries[unstaged("").key()].Conn, l.disturbed = "another", time.Now() },
		"disturbed":          func(l *law) { l.disturbed = time.Now() },
		"restarted": func(l *law) {
			entries := l.list()
			*l = newLaw(config{capabilities: "STAGE_UNSTAGE_VOLUME"})
			l.load(entries)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaw(config{capabilities: "STAGE_UNSTAGE_VOLUME"})
			if got := breaks(l, staged("OK"), unstaged("OK")); got != nil {
				t.Fatal(got)
			}
			lose(&l)
			for _, want := range [][]string{nil, {"unstage-not-staged"}} {
				if got := breaks(l, unstaged("OK"), unpublished("OK").with(otherTarget)); len(got) != 2*len(want) ||
					want != nil && got[0] != want[0] {
					t.Errorf("broken: %q, want %q", got, want)
				}
			}
		})
	}
}
