// Package httpsource is the source of pods whose manifest is at a URL.
//
// The URL is asked again and again (httpCheckFrequency). Only an answer that says
// clearly what to run changes anything: an error, a status other than 200 or a text
// that can't be used keeps the pods as they are. So does a restart: what was last good is on
// disk. It is everything the URL wanted, so with it the source counts as having
// reported even if the URL is out of reach; without it, it doesn't, and nothing on the
// node is removed until the URL has answered once.
package httpsource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	// timeout is how long one request may take, with its answer.
	timeout = 10 * time.Second
	// firstTimeout is the same for the first request after a start if pods are known
	// from before: they shall not wait long for a URL that doesn't answer.
	firstTimeout = 2 * time.Second
	// retryFirst is the time to the first retry after a failure; it doubles up to
	// the normal time between two requests.
	retryFirst = time.Second
)

// Config says what to ask for.
type Config struct {
	// URL is an http or https URL (staticPodURL).
	URL string
	// Header is sent with each request (staticPodURLHeader). Its values are
	// secrets: they are never logged, nor sent to another host that the URL
	// redirects to.
	Header http.Header
	// Every is the time between two requests (httpCheckFrequency).
	Every time.Duration
}

// Source reads a manifest from a URL.
type Source struct {
	url     string
	header  http.Header
	every   time.Duration
	origin  string
	client  *http.Client
	keeper  *manifeststore.Keeper
	journal *manifeststore.Journal
	sink    desired.Sink
	log     logr.Logger

	running sync.Mutex
	// changed says that the keeper holds what wasn't reported yet.
	changed bool
	// known says that the keeper holds everything the URL wants, or wanted last.
	known bool
	// accepted is the sum of the newest text, if it was taken and nothing failed since.
	accepted *[sha256.Size]byte
	// etag and modified name the version of that text in further requests.
	etag, modified string
}

// New returns a source that reports to sink what r reads, and keeps the last good
// pods in store. It does nothing until Run.
func New(config Config, r *reader.Reader, store *manifeststore.Store, sink desired.Sink,
	log logr.Logger) (*Source, error) {
	u, err := url.Parse(config.URL)
	if err != nil {
		// The parser's error repeats the URL, which may hold a password.
		return nil, errors.New("the URL of the manifest can't be parsed: it should look like https://host/path")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL of the manifest should begin with http:// or https:// and a host, not with %q",
			u.Scheme+"://"+u.Host)
	}
	keeper, origin := manifeststore.New(r), shown(*u)
	return &Source{
		url:     config.URL,
		header:  config.Header.Clone(),
		every:   config.Every,
		origin:  origin,
		client:  newClient(config.Header),
		keeper:  keeper,
		journal: manifeststore.NewJournal(keeper, store, origin),
		sink:    sink,
		log:     log.WithValues("source", pod.SourceHTTP, "url", origin),
	}, nil
}

// shown is a URL without what may be secret: user, password and query.
func shown(u url.URL) string {
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// Run reports pods until the context ends; then it returns nil. It may be run
// again after it returned, and goes on where it was.
func (s *Source) Run(ctx context.Context) error {
	if !s.running.TryLock() {
		return errors.New("the http source is running already")
	}
	defer s.running.Unlock()
	defer s.client.CloseIdleConnections()
	within := timeout
	if s.journal.Restore(func(origin string) bool { return origin == s.origin }, time.Now()) {
		s.known = true
		within = firstTimeout
	}
	defer s.journal.Start(ctx)()

	s.changed = true // each run reports at least once
	next := time.NewTimer(0)
	defer next.Stop()
	retry := retryFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.journal.Outcome():
			if s.journal.Saved(time.Now()) {
				s.report()
			}
		case <-next.C:
			ok := s.poll(ctx, within)
			if ctx.Err() != nil {
				return nil // what failed for that reason says nothing about the URL
			}
			if s.changed {
				s.report()
				s.journal.Save()
			}
			wait := s.every
			if ok {
				retry = retryFirst
			} else {
				wait = min(wait, retry)
				retry = 2 * wait // not of retry itself, which would overflow in a long outage
			}
			next.Reset(wait)
			within = timeout
		}
	}
}

func (s *Source) report() {
	r := s.keeper.Report()
	r.Pending = !s.known
	s.changed = false
	s.sink.Report(r)
}

// poll asks the URL once and takes its answer. It reports whether that worked.
func (s *Source) poll(ctx context.Context, within time.Duration) bool {
	data, err := s.fetch(ctx, within)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errNotModified):
		return true
	case err != nil:
		// Forgetting the version has the whole text sent next time.
		s.accepted, s.etag, s.modified = nil, "", ""
		s.keeper.Fail(s.origin, err.Error(), now)
		s.changed = true
		return false
	}
	sum := sha256.Sum256(data)
	if s.accepted != nil && *s.accepted == sum {
		return true
	}
	s.log.V(2).Info("Manifest read", "bytes", len(data))
	s.keeper.Accept(s.origin, data, now)
	s.accepted, s.changed = &sum, true
	s.known = s.known || s.keeper.Good(s.origin)
	return true
}
