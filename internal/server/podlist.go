package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// The parts of a v1.PodList around its items.
const (
	listHead = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`
	listTail = "]}\n"
)

// writeList writes pods as a v1.PodList, one by one, so that no more than one
// pod's text is held.
func writeList(w io.Writer, pods []*v1.Pod) error {
	var e encoder
	return writeItems(w, pods, e.encode)
}

func writeItems(w io.Writer, pods []*v1.Pod, text func(*v1.Pod) ([]byte, error)) error {
	if _, err := io.WriteString(w, listHead); err != nil {
		return err
	}
	for i, p := range pods {
		if i > 0 {
			if _, err := io.WriteString(w, ","); err != nil {
				return err
			}
		}
		b, err := text(p)
		if err != nil {
			return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, listTail)
	return err
}

// encoder turns pods into JSON in a buffer it uses again and again.
type encoder struct {
	buf bytes.Buffer
}

// encode returns text that is good until the next call.
func (e *encoder) encode(p *v1.Pod) ([]byte, error) {
	e.buf.Reset()
	if err := json.NewEncoder(&e.buf).Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")), nil
}

// podCache remembers the JSON of pods that were written, because those who poll
// /pods ask for thousands of pods of which few have changed. Pods are immutable,
// so a pointer stands for a text.
//
// What is remembered lies in a sync.Pool: when nobody asks any more, the garbage
// collector takes it, and an idle agent holds nothing. There is no more than one:
// of requests at the same time, all but the first do without, so that many slow
// clients can't have the texts of all pods held once for each of them.
type podCache struct {
	pool sync.Pool // of *podTexts
	// busy is held by the request that uses the pool.
	busy sync.Mutex
}

func (c *podCache) write(w io.Writer, pods []*v1.Pod) error {
	if !c.busy.TryLock() {
		return writeList(w, pods)
	}
	defer c.busy.Unlock()
	t, ok := c.pool.Get().(*podTexts)
	if !ok {
		t = &podTexts{texts: map[*v1.Pod]podText{}}
	}
	err := t.write(w, pods)
	c.pool.Put(t)
	return err
}

// podTexts holds the JSON of the pods of the last list written.
type podTexts struct {
	encoder
	texts map[*v1.Pod]podText
	round uint64
}

type podText struct {
	json []byte
	// round is the list the pod was last in.
	round uint64
}

func (t *podTexts) write(w io.Writer, pods []*v1.Pod) error {
	t.round++
	err := writeItems(w, pods, t.text)
	for p, text := range t.texts {
		if text.round != t.round {
			delete(t.texts, p)
		}
	}
	return err
}

func (t *podTexts) text(p *v1.Pod) ([]byte, error) {
	text, ok := t.texts[p]
	if !ok {
		b, err := t.encode(p)
		if err != nil {
			return nil, err
		}
		text.json = bytes.Clone(b)
	}
	text.round = t.round
	t.texts[p] = text
	return text.json, nil
}
