package view

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
)

// Disks measures the node's disks.
type Disks interface {
	// FullDisks returns those without room.
	FullDisks(context.Context) []stats.FullDisk
}

// shortages returns the node's full disks as problems, and swapping, which evictions don't prevent.
func (v View) shortages(ctx context.Context) []pod.Problem {
	var list []pod.Problem
	if text := v.conf.Thrashing(); text != "" {
		list = append(list, pod.Problem{Origin: "swap", General: true, Message: "the machine is busy with swapping: " +
			text, Advice: "stop pods that use most memory (`deckhand top pods`), and give pods memory limits; no pod " +
			"is evicted for it, because swapped memory counts as available"})
	}
	if path, since := v.conf.Hanging(); path != "" {
		list = append(list, pod.Problem{Origin: "disk", General: true, Since: since,
			Message: "it " + hangs(path, since),
			Advice:  "look for errors of the disk in `dmesg`; pods that wait for it go on as soon as it answers"})
	}
	for _, d := range v.conf.Disks.FullDisks(ctx) {
		list = append(list, pod.Problem{Origin: "disk " + d.Point, General: true, Message: "it " + describe(&d),
			Advice: explain.FreeDisk(!v.conf.Current().Standalone)})
	}
	return list
}

// becauseOfDisks returns the node's full disks as causes of a wait.
func (v View) becauseOfDisks(ctx context.Context) []string {
	var list []string
	for _, d := range v.conf.Disks.FullDisks(ctx) {
		list = append(list, "the disk "+d.Point+" "+describe(&d))
	}
	return list
}

// becauseOfHang returns a disk that doesn't answer as the cause of an action that writes to it.
func (v View) becauseOfHang(w *pod.Wait) []string {
	if w.Code != pod.WaitAction {
		return nil
	}
	switch w.Action {
	case pod.SaveCheckpoint, pod.AdmitPod, pod.PreparePod, pod.CreateContainer:
		if path, since := v.conf.Hanging(); path != "" {
			return []string{"the disk " + hangs(path, since)}
		}
	}
	return nil
}

// hangs describes a disk that doesn't answer.
func hangs(path string, since time.Time) string {
	return fmt.Sprintf("doesn't answer: a write of %s hasn't returned since %s", path,
		since.UTC().Format(time.RFC3339))
}

// mayAwaitDisk reports whether a full disk is a cause of a wait. Without room runc fails with errors that don't mention
// it: it can't write its log, from which containerd takes the error.
func mayAwaitDisk(w *pod.Wait) bool {
	switch {
	case w.Code == pod.WaitRetry:
		return w.Disk || w.Action == pod.CreateSandbox || w.Action == pod.CreateContainer ||
			w.Action == pod.StartContainer
	case w.Code == pod.WaitBackOff:
		return w.Disk || w.Reason == pod.ReasonStartError
	}
	return w.Disk
}

// describe returns the free room of a full disk, its largest users and its purposes.
func describe(d *stats.FullDisk) string {
	text := "is full: " + d.Room() + " are free"
	users := make([]string, len(d.Most))
	for i, u := range d.Most {
		amount := room.Bytes(u.Bytes)
		if d.Free >= room.Enough {
			amount = fmt.Sprintf("%d inodes", u.Inodes)
		}
		users[i] = fmt.Sprintf("%s (%s)", u.Name, amount)
	}
	if len(users) > 0 {
		text += ", most is used by " + enumerate(users)
	}
	return text + "; it has " + enumerate(d.Holds)
}

// enumerate joins words: "a, b and c".
func enumerate(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
