package apiclient

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// endless answers with a beginning and then more than anything may have, in one piece.
func endless(code int, contentType, begin string, filling byte, compressed bool) http.HandlerFunc {
	block := bytes.Repeat([]byte{filling}, 1<<20)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		var to io.Writer = w
		if compressed {
			if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				panic("not asked for")
			}
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			defer z.Close()
			to = z
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(to, begin)
		for range maxList>>20 + 4 {
			if _, err := to.Write(block); err != nil {
				return
			}
		}
	}
}

const protobuf = "application/vnd.kubernetes.protobuf"

// What a server answers is read up to a bound, after decompression; what has more is an error that says so, and no reason to take
// the server for being away.
func TestAnswersAreBounded(t *testing.T) {
	const secret = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","annotations":{"a":"`
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		ask    func(*rigged) error
		want   string
	}{
		"an object":           {endless(200, "application/json", secret, 'x', false), func(c *rigged) error { return c.get(t.Context(), Calls) }, "the answer is larger than 16 MiB"},
		"a compressed object": {endless(200, "application/json", secret, 'x', true), func(c *rigged) error { return c.get(t.Context(), Calls) }, "the answer is larger than 16 MiB"},
		"a heartbeat":         {endless(200, "application/json", secret, 'x', true), func(c *rigged) error { return c.get(t.Context(), Heartbeat) }, "the answer is larger than 1 MiB"},
		"a review": {endless(201, protobuf, "k8s\x00", 0, true), func(c *rigged) error {
			return c.Create(t.Context(), Reviews, TokenReviews, "", &v1.Node{}, &v1.Node{})
		}, "the answer is larger than 1 MiB"},
		"an event": {endless(201, "application/json", secret, 'x', false), func(c *rigged) error {
			return c.Create(t.Context(), Events, EventRecords, "ns", &v1.Event{}, nil)
		}, "the answer is larger than 1 MiB"},
		"a list": {endless(200, "application/json", `{"kind":"NodeList","metadata":{},"items":[{"metadata":{"name":"`, 'x', false), func(c *rigged) error {
			_, err := c.List(t.Context(), Nodes, "", Selectors{})
			return err
		}, "the answer is larger than 64 MiB"},
		"a compressed list": {endless(200, "application/json", `{"kind":"NodeList","metadata":{},"items":[`, ' ', true), func(c *rigged) error {
			_, err := c.List(t.Context(), Nodes, "", Selectors{})
			return err
		}, "the answer is larger than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, listen(t), nil, c.handle)
			client := loaded(t, s.kubeconfig(t, ""), nil)
			err := c.ask(client)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
				t.Fatalf("%.1000v, want %q", err, c.want)
			}
			if ok, _, why := client.Reached(); !ok {
				t.Errorf("the server counts as away: %v", why)
			}
		})
	}
}

// A list of all Services of a cluster may be larger than lists of a node's objects.
func TestListsAreBounded(t *testing.T) {
	for r := range resources {
		want := int64(64 << 20)
		if r == Services {
			want = 256 << 20
		}
		if got := maxListOf(r); got != want {
			t.Errorf("a list of %s may have %d bytes, want %d", r, got, want)
		}
	}
}

// Of an answer that is an error, only what people read is read, however much there is.
func TestErrorsAreBounded(t *testing.T) {
	for name, compressed := range map[string]bool{"plain": false, "compressed": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, listen(t), nil, endless(500, "text/plain", "no: ", 'x', compressed))
			c := loaded(t, s.kubeconfig(t, ""), nil)
			before := allocated()
			err := c.get(t.Context(), Calls)
			if err == nil || len(err.Error()) > 2*maxSmall {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			if took := allocated() - before; took > maxList {
				t.Errorf("it took %d MiB to read an error", took>>20)
			}
		})
	}
}

// allocated is how much memory was taken from the heap so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// An event of a watch that is too large ends the watch, and all is listed again, which gets beyond the event.
func TestEventsAreBounded(t *testing.T) {
	frame := func(size uint32) string { return string(binary.BigEndian.AppendUint32(nil, size)) }
	for name, c := range map[string]struct {
		begin http.HandlerFunc
		want  string
	}{
		"one without end":        {endless(200, "application/json", `{"type":"ADDED","object":{"metadata":{"name":"`, 'x', false), "an event of the watch of nodes is larger than 16 MiB"},
		"one that is compressed": {endless(200, "application/json", `{"type":"ADDED","object":{"metadata":{"name":"`, 'x', true), "an event of the watch of nodes is larger than 16 MiB"},
		"nothing without end":    {endless(200, "application/json", "", '\n', false), "an event of the watch of nodes is larger than 16 MiB"},
		"Protobuf of 4 GiB":      {endless(200, protobuf, frame(1<<32-1), 'x', false), "an event of the watch of nodes is larger than 16 MiB"},
		"nonsense":               {answer(200, "{]"), "its answer can't be decoded"},
		"an unknown kind":        {answer(200, `{"type":"HINT","object":{}}`), `the watch tells of a "HINT"`},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, client *rigged) {
				s.set(nil, c.begin)
				before := allocated()
				_, told := client.follow(t)
				told("listed 1 at 10", "away: "+c.want)
				if took := allocated() - before; took > 16*maxObject {
					t.Errorf("it took %d MiB to find out", took>>20)
				}
				s.set(nil, nil)
				told("listed 1 at 10", "back")
				s.stream <- event("MODIFIED", "11")
				told("modified n1 at 11")
			})
		})
	}
}

// However much a watch tells, and how fast, only each event is bounded.
func TestManyEvents(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		const n = 17
		filling := strings.Repeat("x", 1<<20)
		s.set(nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for i := range n {
				fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","resourceVersion":"%d","annotations":{"a":"%s"}}}}`, 11+i, filling)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		_, told := c.follow(t)
		told("listed 1 at 10")
		for i := range n {
			told(fmt.Sprintf("modified n1 at %d", 11+i))
		}
	})
}

// One object that can't be decoded is left out of lists and watches, and logged once; all others are seen.
func TestMalformedObjects(t *testing.T) {
	const bad = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"bad","uid":"u","resourceVersion":"%s"},"spec":{"unschedulable":"perhaps"}}`
	watched(t, func(t *testing.T, s *served, c *rigged) {
		list := fmt.Sprintf(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[`+bad+`,{"metadata":{"name":"n1"}},{"metadata":{"name":7,"uid":"v"}},3]}`, "5")
		s.set(answer(200, list), nil)
		to, told := c.follow(t)
		told("listed 1 at 10", "malformed bad u, deleted: false", "malformed  v, deleted: false", "malformed  , deleted: false")
		s.stream <- `{"type":"MODIFIED","object":` + fmt.Sprintf(bad, "11") + `}`
		told("malformed bad u, deleted: false")
		s.stream <- `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"other","resourceVersion":"12"}}}`
		s.stream <- `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v9","metadata":{"name":"newer","resourceVersion":"13"}}}`
		s.stream <- `{"type":"ADDED","object":7}`
		told("malformed other , deleted: false", "malformed newer , deleted: false", "malformed  , deleted: false")
		s.stream <- event("MODIFIED", "14")
		told("modified n1 at 14")
		s.stream <- `{"type":"DELETED","object":` + fmt.Sprintf(bad, "15") + `}`
		told("malformed bad u, deleted: true")
		s.stream <- "end"
		s.stream <- event("MODIFIED", "16")
		told("modified n1 at 16")
		if _, watches := s.asked(); fmt.Sprint(watches) != "[10 15]" {
			t.Errorf("watched from %s", watches)
		}
		to.quiet(t, 0)
		if n := c.log.count(`can't be decoded`); n != 6 || c.log.count(`"bad"`) != 1 || !strings.Contains(c.log.String(), "unschedulable") {
			t.Errorf("logged %d times:\n%s", n, c.log)
		}
	})
}

// Lists in Protobuf are the same; so are those that are none.
func TestDecodeList(t *testing.T) {
	pods := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(9007199254740993))}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", UID: "2"}, Spec: v1.PodSpec{NodeName: "broken"}},
	}}
	c := newClient(t, "/kubeconfig", nil)
	encode := func(media string) []byte {
		info, _ := kruntime.SerializerInfoForMediaType(c.codecs.SupportedMediaTypes(), media)
		text, err := kruntime.Encode(c.codecs.EncoderForVersion(info.Serializer, v1.SchemeGroupVersion), pods)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for media, damage := range map[string]func([]byte) []byte{
		protobuf: func(b []byte) []byte { // the length of a field of the second pod's spec
			return bytes.Replace(b, []byte("\x06broken"), []byte("\x7fbroken"), 1)
		},
		"application/json": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"broken"`), []byte(`["roken"]`), 1)
		},
	} {
		t.Run(media, func(t *testing.T) {
			whole := encode(media)
			l, err := decodeList(Pods, media, whole)
			if err != nil || len(l.Objects) != 2 || l.Malformed != nil || l.Version != "7" || *l.Objects[0].(*v1.Pod).Spec.TerminationGracePeriodSeconds != 9007199254740993 {
				t.Fatalf("%+v, %v", l, err)
			}
			l, err = decodeList(Pods, media, damage(whole))
			if err != nil || len(l.Objects) != 1 || l.Objects[0].(*v1.Pod).Name != "a" || len(l.Malformed) != 1 || l.Malformed[0].Name != "b" || l.Malformed[0].UID != "2" ||
				!strings.HasPrefix(l.Malformed[0].Error(), `pods "ns/b" of the API server can't be decoded: `) {
				t.Fatalf("damaged: %+v, %v", l, err)
			}
			for _, cut := range []int{0, 3, 5, len(whole) / 2, len(whole) * 3 / 4} {
				if _, err := decodeList(Pods, media, whole[:cut]); err == nil {
					t.Errorf("%d bytes of %d are a list", cut, len(whole))
				}
			}
			if _, err := decodeList(Nodes, media, whole); err == nil || !strings.Contains(err.Error(), `"PodList", not a NodeList`) {
				t.Errorf("a list of pods is one of nodes: %v", err)
			}
		})
	}
	for _, text := range []string{`{}`, `[]`, `null`, `{"kind":"Status","status":"Failure"}`} {
		if l, err := decodeList(Pods, "application/json", []byte(text)); err == nil {
			t.Errorf("%s is the list %+v", text, l)
		}
	}
}

// What can't be decoded is neither the end of a single object nor its newest state.
func TestSingleKeepsWhatIsKnown(t *testing.T) {
	var now []string
	single := Single[*v1.Node](func(n *v1.Node) {
		name := "none"
		if n != nil {
			name = n.Name
		}
		now = append(now, name)
	})
	single.Listed(List{Objects: []kruntime.Object{&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}})
	single.Listed(List{Malformed: []Malformed{{Name: "n1"}}})
	single.Malformed(Malformed{Name: "n1"})
	single.Malformed(Malformed{Name: "n1", Deleted: true})
	single.Changed(watch.Added, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	single.Listed(List{})
	if got := strings.Join(now, " "); got != "n1 none n2 none" {
		t.Errorf("told %s", got)
	}
}

// A watch that stays open and tells nothing is ended when its time is over and 30 s more, and all is listed again: whatever heartbeats say.
func TestSilentWatch(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		s.stuck = true
		_, told := c.follow(t)
		told("listed 1 at 10")
		for range 3 {
			began := time.Now()
			beats := make(chan struct{})
			go func() {
				defer close(beats)
				for time.Since(began) < watchTime*time.Second {
					_ = c.get(t.Context(), Heartbeat)
					time.Sleep(10 * time.Second)
				}
			}()
			told("away: it didn't end the watch when its time was over", "listed 1 at 10")
			if took := time.Since(began); took < watchTime*time.Second+overdue || took > 2*watchTime*time.Second+overdue+time.Second {
				t.Errorf("listed again after %s", took)
			}
			<-beats
			told("back")
		}
		s.stream <- event("MODIFIED", "11")
		told("modified n1 at 11")
		if ok, _, err := c.Reached(); !ok {
			t.Errorf("the server counts as away: %v", err)
		}
	})
}

// Where bookmarks come and then don't, all is listed again, once; where none ever came, that means nothing.
func TestMissingBookmarks(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		to, told := c.follow(t)
		told("listed 1 at 10")
		to.quiet(t, bookmarkGap+time.Minute)
		for i := range 10 {
			s.stream <- event("BOOKMARK", fmt.Sprint(11+i))
			to.quiet(t, time.Minute)
		}
		began := time.Now()
		told("listed 1 at 10")
		if took := time.Since(began); took > 2*bookmarkGap { // the watch may have begun since
			t.Errorf("listed again after %s", took)
		}
		to.quiet(t, 20*time.Minute)
	})
}

// Integers of any size are told as they are, and differ where they differ.
func TestDifferenceOfIntegers(t *testing.T) {
	const large = 1<<53 + 1
	was, now := &v1.Pod{}, &v1.Pod{}
	was.Status.ObservedGeneration, now.Status.ObservedGeneration = large-1, large
	d, err := Difference(was, now)
	if got := fmt.Sprint(d); err != nil || got != "map[status:map[observedGeneration:9007199254740993]]" {
		t.Errorf("%s, %v", got, err)
	}
}
