package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// A kind of call, as far as the law is concerned.
type kind string

const (
	other     kind = ""
	attach    kind = "attach"
	detach    kind = "detach"
	stage     kind = "stage"
	unstage   kind = "unstage"
	publish   kind = "publish"
	unpublish kind = "unpublish"
	expand    kind = "expand"
	stats     kind = "stats"
)

// step is a call as the law sees it.
type step struct {
	kind           kind
	volume, target string
	// staging is the staging path of a publish.
	staging string
	// inline volumes aren't staged.
	inline bool
	// args are the arguments that may not change while the volume is in use: without secrets and tokens.
	args string
	// conn names the connection of the call.
	conn string
}

// undoes returns the kind that a kind undoes.
func (k kind) undoes() (made kind, undo bool) {
	switch k {
	case detach:
		return attach, true
	case unstage:
		return stage, true
	case unpublish:
		return publish, true
	}
	return k, false
}

// key names what a call makes or removes, "" for calls that do neither.
func (s step) key() string {
	switch made, _ := s.kind.undoes(); made {
	case attach, stage:
		return string(made) + " " + s.volume
	case publish:
		return string(made) + " " + s.volume + " " + s.target
	}
	return ""
}

const tokens = "csi.storage.k8s.io/serviceAccount.tokens"

func stepOf(req any) step {
	args := func(capability *csi.VolumeCapability, maps ...map[string]string) string {
		// Go's JSON sorts the keys of maps, and protobuf's deterministic output is the same within a process's version.
		data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(capability)
		text, _ := json.Marshal(maps)
		return hex.EncodeToString(data) + string(text)
	}
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return step{volume: r.GetName()}
	case *csi.ControllerPublishVolumeRequest:
		return step{kind: attach, volume: r.GetVolumeId()}
	case *csi.ControllerUnpublishVolumeRequest:
		return step{kind: detach, volume: r.GetVolumeId()}
	case *csi.NodeStageVolumeRequest:
		return step{kind: stage, volume: r.GetVolumeId(), target: r.GetStagingTargetPath(),
			args: args(r.GetVolumeCapability(), r.GetPublishContext(), r.GetVolumeContext())}
	case *csi.NodeUnstageVolumeRequest:
		return step{kind: unstage, volume: r.GetVolumeId(), target: r.GetStagingTargetPath()}
	case *csi.NodePublishVolumeRequest:
		attributes := maps.Clone(r.GetVolumeContext())
		delete(attributes, tokens)
		s := step{kind: publish, volume: r.GetVolumeId(), target: r.GetTargetPath(), staging: r.GetStagingTargetPath(),
			args: args(r.GetVolumeCapability(), r.GetPublishContext(), attributes)}
		s.args += fmt.Sprint(r.GetReadonly())
		s.inline = isInline(r)
		return s
	case *csi.NodeUnpublishVolumeRequest:
		return step{kind: unpublish, volume: r.GetVolumeId(), target: r.GetTargetPath()}
	case *csi.NodeExpandVolumeRequest:
		return step{kind: expand, volume: r.GetVolumeId(), target: r.GetVolumePath()}
	case *csi.NodeGetVolumeStatsRequest:
		return step{kind: stats, volume: r.GetVolumeId(), target: r.GetVolumePath()}
	case interface{ GetVolumeId() string }:
		return step{volume: r.GetVolumeId()}
	}
	return step{}
}

// isInline recognizes inline volumes, by the pod's information or by the form of their handles.
func isInline(r *csi.NodePublishVolumeRequest) bool {
	digits, ok := strings.CutPrefix(r.GetVolumeId(), "csi-")
	_, err := hex.DecodeString(digits)
	return r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" ||
		ok && err == nil && len(digits) == 64 && r.GetStagingTargetPath() == ""
}

// State of what a call makes, as the caller may know it.
type condition string

const (
	none        condition = "none"
	unknown     condition = "unknown"
	made        condition = "made"
	undoUnknown condition = "undo-unknown"
)

type outcome int

const (
	succeeded outcome = iota
	refused           // final: nothing has changed
	uncertain         // the work may have happened, or may still happen
)

// outcomeOf is the outcome of a call for its caller.
func outcomeOf(c driver.Call) outcome {
	if c.Left {
		return uncertain
	}
	switch c.Code {
	case codes.OK.String():
		return succeeded
	case cut, killed, codes.Canceled.String(), codes.DeadlineExceeded.String(), codes.Unavailable.String(),
		codes.ResourceExhausted.String(), codes.Aborted.String():
		return uncertain
	}
	return refused
}

// next is the table of the law: the condition after a call.
func (c condition) next(undo bool, o outcome) condition {
	switch {
	case undo && o == succeeded:
		return none
	case undo && c == none:
		return none
	case undo:
		return undoUnknown
	case o == succeeded:
		return made
	case o == uncertain && c == none:
		return unknown
	}
	return c
}

// entry is the law's memory of an attached, staged or published volume.
type entry struct {
	Kind           kind
	Volume, Target string
	State          condition
	// Before is the state before the call that runs, whose Seq is Running.
	Before  condition
	Running int
	// Refused reports whether State is none because the volume was refused.
	Refused bool
	Args    string
	// Answered is when the last call was answered, and Conn its connection. Lost reports whether the caller may have
	// missed the answer.
	Answered time.Time
	Conn     string
	Lost     bool
}

// noneWindow is how long an entry is remembered after its end.
const noneWindow = 10 * time.Second

// law checks calls from the driver's side. A rule that a call breaks is reported under these names:
//
//	overlap                          two calls for one volume and target at a time
//	stage-without-capability         Stage, but the driver can't stage
//	stage-other-arguments            Stage with other arguments, and no Unstage in between
//	stage-while-published            Stage of a volume that is published
//	unstage-after-refused-stage      Unstage after a final error of Stage
//	unstage-not-staged               Unstage of a volume that isn't staged
//	unstage-while-published          Unstage while a target is, or may be, published
//	publish-not-staged               Publish before Stage succeeded
//	publish-other-staging-path       Publish with another staging path than that of Stage
//	publish-other-arguments          Publish with other arguments, and no Unpublish in between
//	publish-target-in-use            Publish at the target of another volume
//	unpublish-after-refused-publish  Unpublish after a final error of Publish
//	unpublish-not-published          Unpublish of a volume that isn't published there
//	expand-not-staged                Expand of a volume that is neither staged nor published
//	stats-not-staged                 Stats of a volume that is neither staged nor published
//	not-attached                     Stage, or Publish without it, before attachment
//	detach-while-in-use              detachment of a volume that is, or may be, staged or published
//
// A caller that got no answer undoes what the driver may never have been asked for, or has undone already. So another
// connection, and a restart of the driver, allow to undo once what is undone.
type law struct {
	canStage, canAttach bool
	entries             map[string]*entry
	// disturbed is when the driver started again, or a connection came or ended: answers and calls from before may be
	// lost.
	disturbed time.Time
}

func newLaw(c config) law {
	return law{canStage: c.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME), canAttach: c.attach,
		entries: map[string]*entry{}}
}

// load continues the law of a driver that ended.
func (l *law) load(entries []*entry) {
	l.disturbed = time.Now()
	for _, e := range entries {
		e.Running = 0 // its outcome is unknown, as State says
		l.entries[step{kind: e.Kind, volume: e.Volume, target: e.Target}.key()] = e
	}
}

// list returns the entries, and drops old ones without any state.
func (l *law) list() []*entry {
	maps.DeleteFunc(l.entries, func(_ string, e *entry) bool {
		return e.State == none && e.Running == 0 && time.Since(e.Answered) > noneWindow
	})
	return slices.SortedFunc(maps.Values(l.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Target, b.Target))
	})
}

// of returns the entries of a volume that are of a kind and not none.
func (l *law) of(volume string, k kind) (list []*entry) {
	for _, e := range l.entries {
		if e.Volume == volume && e.Kind == k && e.State != none {
			list = append(list, e)
		}
	}
	return list
}

// entry returns the entry that a call is about.
func (l *law) entry(s step) *entry {
	e := l.entries[s.key()]
	if e == nil {
		makes, _ := s.kind.undoes()
		e = &entry{Kind: makes, Volume: s.volume, Target: s.target, State: none}
		l.entries[s.key()] = e
	}
	return e
}

// drop notes a call that came too late to be handled.
func (l *law) drop(s step) {
	if s.key() != "" {
		e := l.entry(s)
		e.Lost, e.Answered = true, time.Now()
	}
}

// begin checks a call and notes that its outcome is unknown.
func (l *law) begin(c driver.Call, s step) (broken []driver.Violation) {
	violation := func(rule, format string, args ...any) {
		text := fmt.Sprintf("%s of volume %q at %s: ", c.Method, s.volume, s.target) + fmt.Sprintf(format, args...)
		broken = append(broken, driver.Violation{Rule: rule, Seq: c.Seq, Volume: s.volume, Text: text})
	}
	staged, published := l.of(s.volume, stage), l.of(s.volume, publish)
	is := func(list []*entry, state condition) bool {
		return slices.ContainsFunc(list, func(e *entry) bool { return e.State == state && e.Running == 0 })
	}
	switch s.kind {
	case other:
		return nil
	case expand, stats:
		if !is(staged, made) && !is(published, made) {
			violation(string(s.kind)+"-not-staged", "it is neither staged nor published")
		}
		return broken
	}
	makes, undo := s.kind.undoes()
	e := l.entry(s)
	if e.Running != 0 {
		violation("overlap", "call %d is under way", e.Running)
	}
	attached := is(l.of(s.volume, attach), made)
	switch s.kind {
	case stage:
		if !l.canStage {
			violation("stage-without-capability", "the driver has no STAGE_UNSTAGE_VOLUME")
		}
		if e.State != none && (e.Args != s.args || e.Target != s.target) {
			violation("stage-other-arguments", "the state is %s at %s, with %s; now %s", e.State, e.Target, e.Args, s.args)
		}
		if is(published, made) {
			violation("stage-while-published", "it is published at %s", published[0].Target)
		}
	case unstage:
		if len(published) > 0 {
			violation("unstage-while-published", "at %s the state is %s", published[0].Target, published[0].State)
		}
	case publish:
		if l.canStage && !s.inline && !is(staged, made) {
			violation("publish-not-staged", "Stage has not succeeded")
		} else if l.canStage && !s.inline && staged[0].Target != s.staging {
			violation("publish-other-staging-path", "%s isn't %s", s.staging, staged[0].Target)
		}
		if e.State != none && e.Args != s.args {
			violation("publish-other-arguments", "the state is %s with %s; now %s", e.State, e.Args, s.args)
		}
		for _, o := range l.entries {
			if o.Kind == publish && o != e && o.Target == s.target && o.State != none {
				violation("publish-target-in-use", "there is volume %q, the state is %s", o.Volume, o.State)
			}
		}
	case detach:
		if len(staged)+len(published) > 0 {
			violation("detach-while-in-use", "%d are or may be staged and %d published", len(staged), len(published))
		}
	}
	if l.canAttach && !attached && (s.kind == stage || s.kind == publish && !l.canStage && !s.inline) {
		violation("not-attached", "it isn't attached")
	}
	lost := e.Lost || l.disturbed.After(e.Answered) || e.Conn != "" && e.Conn != s.conn
	if undo && e.State == none && !lost && makes != attach {
		if e.Refused {
			violation(fmt.Sprintf("%s-after-refused-%s", s.kind, makes), "it was refused")
		} else {
			violation(fmt.Sprintf("%s-not-%s", s.kind, map[kind]string{stage: "staged", publish: "published"}[makes]),
				"it isn't")
		}
	}
	if e.Lost = undo; !undo { // an undo without an answer has to be repeated
		e.Args, e.Target = s.args, s.target
	}
	e.Before, e.Running, e.Conn = e.State, c.Seq, s.conn
	e.State = e.Before.next(undo, uncertain)
	return broken
}

// end applies the outcome of a call. The caller may have missed the answer if maybeLost.
func (l *law) end(c driver.Call, s step, maybeLost bool) {
	e := l.entries[s.key()]
	if e == nil || e.Running != c.Seq {
		return
	}
	_, undo := s.kind.undoes()
	o := outcomeOf(c)
	e.State = e.Before.next(undo, o)
	e.Refused = !undo && o == refused && e.State == none
	e.Running, e.Answered, e.Lost = 0, time.Now(), maybeLost || undo && o != succeeded
}
