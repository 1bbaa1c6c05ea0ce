package apiclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// Bounds of answers in bytes, after decompression. An API server accepts requests of at most 3 MiB, and by default
// etcd stores objects of at most 1.5 MiB; JSON makes them larger.
const (
	// maxSmall bounds answers to heartbeats, events and reviews, and all error answers.
	maxSmall = 1 << 20
	// maxObject bounds an object, and an event of a watch.
	maxObject = 16 << 20
	// maxList bounds a list: it has room for some hundred pods that are far larger than usual.
	maxList = 64 << 20
	// maxServices bounds the list of Services, which are those of the whole cluster: 10,000 of them, with
	// managedFields and annotations, exceed 64 MiB.
	maxServices = 256 << 20
	// maxHeader bounds the HTTP header of an answer.
	maxHeader = 256 << 10
)

// maxListOf is the bound of a list of the resource, in bytes.
func maxListOf(r Resource) int64 {
	if r == Services {
		return maxServices
	}
	return maxList
}

// tooLarge says that an answer, or a part of one, exceeds its bound.
type tooLarge struct {
	what string
	most int64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%s is larger than %d MiB, and isn't read", e.what, e.most>>20)
}

// limited is an answer's body that is read up to a bound.
type limited struct {
	io.ReadCloser
	what       string
	most, read int64
	// lost receives the error of a failed read, except io.EOF.
	lost *error
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if left := l.most - l.read; int64(len(b)) > left {
		b = b[:left+1] // read one byte more than allowed, to detect an excess
	}
	n, err := l.ReadCloser.Read(b)
	if l.read += int64(n); l.read > l.most {
		return 0, &tooLarge{l.what, l.most}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		*l.lost = err
	}
	return n, err
}

// List is all objects that the selectors choose, as of the resource version Version.
type List struct {
	Objects []kruntime.Object
	// Malformed are the objects that can't be decoded.
	Malformed []Malformed
	Version   string
}

// Malformed is an object of the server that can't be decoded. Unless it was deleted, its previous state stays in use.
// Other objects aren't affected.
type Malformed struct {
	Resource Resource
	// Namespace, Name and UID are empty if they can't be decoded either.
	Namespace, Name string
	UID             types.UID
	// Deleted says that a watch reported the deletion of the object.
	Deleted bool
	Err     error

	version string
}

// Error says what is wrong with the object.
func (m Malformed) Error() string {
	name := m.Name
	if m.Namespace != "" {
		name = m.Namespace + "/" + name
	}
	text := m.Err.Error()
	return fmt.Sprintf("%s %q of the API server can't be decoded: %s", m.Resource, name,
		text[:min(len(text), maxReason)])
}

// Identified reports whether the name or the UID could be decoded.
func (m Malformed) Identified() bool { return m.UID != "" || m.Name != "" }

// maxReason bounds the decoder's error in messages, in bytes: it may quote the object.
const maxReason = 300

// decodeList decodes a list, each object on its own.
func decodeList(r Resource, contentType string, body []byte) (List, error) {
	item := r.described().item
	want := reflect.TypeOf(item()).Elem().Name() + "List"
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return List{}, fmt.Errorf("the answer's type %q: %w", contentType, err)
	}
	var (
		kind, version string
		items         [][]byte
		decode        func([]byte, kruntime.Object) error
		identify      func([]byte) Malformed
	)
	if media == kruntime.ContentTypeProtobuf {
		kind, version, items, err = splitProtobuf(body)
		decode, identify = unmarshal, identifyProtobuf
	} else {
		kind, version, items, err = splitJSON(body)
		decode, identify = func(b []byte, o kruntime.Object) error { return utiljson.Unmarshal(b, o) }, identifyJSON
	}
	if err != nil {
		return List{}, fmt.Errorf("the list of %s can't be decoded: %w", r, err)
	}
	if kind != want {
		return List{}, fmt.Errorf("the list of %s is a %.100q, not a %s", r, kind, want)
	}
	l := List{Version: version, Objects: make([]kruntime.Object, 0, len(items))}
	for _, b := range items {
		o := item()
		if err := decode(b, o); err != nil {
			m := identify(b)
			m.Resource, m.Err = r, err
			l.Malformed = append(l.Malformed, m)
			continue
		}
		l.Objects = append(l.Objects, o)
	}
	return l, nil
}

func splitJSON(body []byte) (kind, version string, items [][]byte, err error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", "", nil, err
	}
	items = make([][]byte, len(list.Items))
	for i, b := range list.Items {
		items[i] = b
	}
	return list.Kind, list.Metadata.ResourceVersion, items, nil
}

// protobufMagic begins each object in Protobuf.
var protobufMagic = []byte("k8s\x00")

// Fields of a list in Protobuf, the same for all kinds.
const (
	listMetadata = 1
	listItems    = 2
)

func splitProtobuf(body []byte) (kind, version string, items [][]byte, err error) {
	rest, whole := bytes.CutPrefix(body, protobufMagic)
	var u kruntime.Unknown
	if !whole {
		return "", "", nil, errors.New("it isn't Protobuf")
	}
	if err := u.Unmarshal(rest); err != nil {
		return "", "", nil, err
	}
	for rest := u.Raw; len(rest) > 0; {
		number, form, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return "", "", nil, protowire.ParseError(n)
		}
		rest = rest[n:]
		size := protowire.ConsumeFieldValue(number, form, rest)
		if size < 0 {
			return "", "", nil, protowire.ParseError(size)
		}
		if form == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(rest[:size])
			switch number {
			case listMetadata:
				var m metav1.ListMeta
				if err := m.Unmarshal(value); err != nil {
					return "", "", nil, err
				}
				version = m.ResourceVersion
			case listItems:
				items = append(items, value)
			}
		}
		rest = rest[size:]
	}
	return u.Kind, version, items, nil
}

func unmarshal(b []byte, o kruntime.Object) error {
	m, ok := o.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no Protobuf encoding", o)
	}
	return m.Unmarshal(b)
}

// identifyJSON extracts the identity of an object that can't be decoded.
func identifyJSON(b []byte) Malformed {
	var o struct {
		Metadata struct{ Namespace, Name, UID, ResourceVersion any }
	}
	if json.Unmarshal(b, &o) != nil {
		return Malformed{}
	}
	text := func(v any) string { s, _ := v.(string); return s }
	m := &o.Metadata
	return Malformed{Namespace: text(m.Namespace), Name: text(m.Name), UID: types.UID(text(m.UID)),
		version: text(m.ResourceVersion)}
}

func identifyProtobuf(b []byte) Malformed {
	var o metav1.PartialObjectMetadata // the first field of every kind is its metadata
	if o.Unmarshal(b) != nil {
		return Malformed{}
	}
	return Malformed{Namespace: o.Namespace, Name: o.Name, UID: o.UID, version: o.ResourceVersion}
}

// stream is the answer to a watch.
type stream struct {
	resource Resource
	body     *limited
	events   streaming.Decoder
	objects  kruntime.Decoder
}

// newStream decodes the answer to a watch of a resource, by its content type.
func (c *Client) newStream(r Resource, contentType string, body io.ReadCloser, lost *error) (*stream, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("the answer's type %q: %w", contentType, err)
	}
	objects, event, framer, err := kruntime.NewClientNegotiator(c.codecs.WithoutConversion(),
		r.described().version).StreamDecoder(media, params)
	if err != nil {
		return nil, fmt.Errorf("the answer's type %q: %w", contentType, err)
	}
	l := &limited{ReadCloser: body, what: "an event of the watch of " + r.String(), most: maxObject, lost: lost}
	return &stream{r, l, streaming.NewDecoder(framer.NewFrameReader(l), event), objects}, nil
}

// watchEvent is an event of a watch: an object in its new state, or one that can't be decoded.
type watchEvent struct {
	kind      watch.EventType
	object    kruntime.Object
	malformed *Malformed
	// err is why the stream ended; no event comes after it.
	err error
}

// next reads the next event of the watch.
func (s *stream) next() watchEvent {
	// Bytes that the decoder has read ahead aren't counted: at most as many as the largest event has.
	s.body.read = 0
	var e metav1.WatchEvent
	if _, _, err := s.events.Decode(nil, &e); err != nil {
		switch {
		case errors.Is(err, streaming.ErrObjectTooLarge):
			err = &tooLarge{s.body.what, s.body.most}
		case *s.body.lost != nil, errors.Is(err, io.ErrUnexpectedEOF):
			err = io.EOF // the connection broke; the next call finds out why
		}
		return watchEvent{err: err}
	}
	t := watchEvent{kind: watch.EventType(e.Type)}
	switch t.kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return watchEvent{err: fmt.Errorf("the watch tells of a %.100q", e.Type)}
	}
	o, err := kruntime.Decode(s.objects, e.Object.Raw)
	switch {
	case err == nil && (t.kind == watch.Error || reflect.TypeOf(o) == reflect.TypeOf(s.resource.described().item())):
		t.object = o
		return t
	case err == nil:
		err = fmt.Errorf("it is a %T", o)
	}
	if t.kind == watch.Error {
		return watchEvent{err: fmt.Errorf("the error that the watch ends with can't be decoded: %w", err)}
	}
	m := identify(e.Object.Raw)
	m.Resource, m.Deleted, m.Err = s.resource, t.kind == watch.Deleted, err
	t.malformed = &m
	return t
}

// identify extracts the identity of an object that can't be decoded.
func identify(b []byte) Malformed {
	rest, binary := bytes.CutPrefix(b, protobufMagic)
	if !binary {
		return identifyJSON(b)
	}
	var u kruntime.Unknown
	if u.Unmarshal(rest) != nil {
		return Malformed{}
	}
	return identifyProtobuf(u.Raw)
}
