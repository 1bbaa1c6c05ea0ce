// Package httpsource is the source of pods with a manifest at a URL.
//
// The URL is polled (httpCheckFrequency). Only a usable manifest changes anything: an error, a status other than 200 or
// an invalid text keeps the pods as they are. A restart keeps them, too, because the last good state is on disk. The
// state on disk is complete, so that after a restart the source counts as having reported even if the URL is
// unreachable. Without a stored state, the source doesn't count as having reported, and nothing on the node is removed
// until the URL has responded once.
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
	// timeout is the timeout of a request, including its response.
	timeout = 10 * time.Second
	// firstTimeout is the timeout of the first request after a start if there are stored pods: they mustn't wait long
	// for a URL that doesn't respond.
	firstTimeout = 2 * time.Second
	// retryFirst is the delay of the first retry after a failure; it doubles up to the normal interval.
	retryFirst = time.Second
)

// Config is the configuration of a Source.
type Config struct {
	// URL is an http or https URL (staticPodURL).
	URL string
	// Header is sent with each request (staticPodURLHeader). Its values are secrets: they are never logged, nor sent
	// to another host after a redirect.
	Header http.Header
	// Every is the interval of requests (httpCheckFrequency).
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
	// changed says that the keeper has changes that haven't been reported yet.
	changed bool
	// known says that the keeper has the complete state of the URL, current or from before the start.
	known bool
	// accepted is the checksum of the newest text if it was used and no request has failed since.
	accepted *[sha256.Size]byte
	// etag and modified are the headers ETag and Last-Modified of that text, for conditional requests.
	etag, modified string
}

// New returns a source that reads with r, reports to sink and keeps the last good pods in store. It does nothing
// until Run.
func New(config Config, r *reader.Reader, store *manifeststore.Store, sink desired.Sink,
	log logr.Logger) (*Source, error) {
	u, err := url.Parse(config.URL)
	if err != nil {
		// The parser's error contains the URL, which may have a password.
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

// shown is a URL without its parts that may be secret: user, password and query.
func shown(u url.URL) string {
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// Run reports pods until ctx is done; then it returns nil. It may be run again after it returned, and continues with
// its state.
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
				return nil // a failure because of ctx says nothing about the URL
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
				retry = 2 * wait // wait is bounded by every: doubling retry itself would overflow in a long outage
			}
			next.Reset(wait)
			within = timeout
		}
	}
}

func (s *Source) report() {
	r := s.keeper.Report()
	r.Pending, r.Away = !s.known, !s.known // the first report follows the first request
	s.changed = false
	s.sink.Report(r)
}

// poll requests the URL once and processes the response. It reports whether that succeeded.
func (s *Source) poll(ctx context.Context, within time.Duration) bool {
	data, err := s.fetch(ctx, within)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errNotModified):
		return true
	case err != nil:
		// Without the ETag and the time, the next response contains the whole text.
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
