package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// The parts of a v1.PodList before and after its items.
const (
	listHead = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`
	listTail = "]}\n"
)

// writeList writes pods as a v1.PodList, one by one, so that only one pod's JSON is in memory.
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

// encoder encodes pods as JSON in a reused buffer.
type encoder struct {
	buf bytes.Buffer
}

// encode returns JSON that is valid until the next call.
func (e *encoder) encode(p *v1.Pod) ([]byte, error) {
	e.buf.Reset()
	if err := json.NewEncoder(&e.buf).Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")), nil
}

// podCache caches the JSON of pods: clients that poll /pods get thousands of pods of which few have changed. Pods are
// immutable, so the pointer to a pod is its key.
//
// The cache is in a sync.Pool: the garbage collector frees it when no client polls any more. There is only one cache.
// While a request uses it, other requests are served without a cache. Otherwise each of many slow clients would hold
// a copy of all pods.
type podCache struct {
	pool sync.Pool // of *podTexts
	// busy is locked by the request that uses the pool.
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

// podTexts caches the JSON of the pods of the last list.
type podTexts struct {
	encoder
	texts map[*v1.Pod]podText
	round uint64
}

type podText struct {
	json []byte
	// round is the number of the last list that had the pod.
	round uint64
}

func (t *podTexts) write(w io.Writer, pods []*v1.Pod) error {
	t.round++
	err := writeItems(w, pods, t.text)
	maps.DeleteFunc(t.texts, func(_ *v1.Pod, text podText) bool { return text.round != t.round })
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
