// Package certificates has a cluster sign certificates of this node: the one that it shows to the API server, and that
// of its HTTPS server. Each is asked for with a key of its own, and again before it ends.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificates "k8s.io/api/certificates/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Config says what a Renewer works with.
type Config struct {
	// Signer signs the certificates, and Usage is what they are for.
	Signer string
	Usage  certificates.KeyUsage
	// Dir is the directory of certificates (--cert-dir), and Name how their files there begin.
	Dir, Name string
	// Keep is for who doesn't want the certificate renewed before it has ended.
	Keep bool
	// Wanted is what is asked for at the moment, but for the key; nil if nothing is.
	Wanted func() *x509.CertificateRequest
	// Current is the certificate that is used; nil if none is needed. An error says that there is none.
	Current func() (*tls.Certificate, error)
	// Ask calls do with the requests of the API server, unless it finds that nothing has to be asked for. What do saves
	// is in use when it returns.
	Ask func(ctx context.Context, do func(context.Context, Requests) error) error
	// Changed receives when any of this may answer otherwise.
	Changed <-chan struct{}
	Meter   Meter
	// Troubled is called when Problem has changed.
	Troubled func()
	Log      logr.Logger
}

// Meter counts. Its methods may be called concurrently.
type Meter interface {
	// Valid says until when the certificate is valid that is used.
	Valid(until time.Time)
	// Renewed says that a certificate took the place of one that was issued so long ago.
	Renewed(age time.Duration)
	// Failed says that no certificate was issued when there should have been one.
	Failed()
}

// Renewer keeps one certificate of the node valid.
type Renewer struct {
	conf  Config
	files files

	// known is the certificate that is to be renewed at a time, and asked for what it was asked; nil if that is not
	// known.
	known []byte
	at    time.Time
	asked *x509.CertificateRequest

	mu      sync.Mutex
	problem pod.Problem
}

// New returns a Renewer. It does nothing before Run.
func New(c Config) *Renewer { return &Renewer{conf: c, files: files{c.Dir, c.Name}} }

// patience is how long something may be wrong that passes by itself, as a rule.
const patience = 5 * time.Second

// Problem is what keeps the cluster from issuing the certificate, without a message if nothing does.
func (r *Renewer) Problem() pod.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.problem.Since) < patience {
		return pod.Problem{}
	}
	return r.problem
}

// trouble says what is wrong from now on; nothing if it is empty.
func (r *Renewer) trouble(message string) {
	r.mu.Lock()
	changed := r.problem.Message != message
	if changed {
		r.problem = pod.Problem{Source: pod.SourceAPI, Origin: r.files.current(), Message: message, Since: time.Now()}
	}
	r.mu.Unlock()
	if changed {
		r.conf.Troubled()
	}
}

// Run renews the certificate in time until ctx ends. It sleeps between.
func (r *Renewer) Run(ctx context.Context) error {
	var again time.Time // not before that
	failures, said := 0, ""
	for ctx.Err() == nil {
		due := r.due()
		switch {
		case due.IsZero(), due.After(time.Now()): // all is well
			failures, said, again = 0, "", time.Time{}
			r.trouble("")
		case due.Before(again):
			due = again
		}
		if !r.await(ctx, due) {
			continue
		}
		err := r.renew(ctx)
		if err == nil || errors.Is(err, context.Canceled) { // what is wanted is there, or is something else by now
			continue
		}
		r.trouble(err.Error())
		r.conf.Meter.Failed()
		again = time.Now().Add(pause(err, failures))
		failures++
		if text := err.Error(); text != said && !apiclient.Unusable(err) {
			said = text
			r.conf.Log.Error(err, "The cluster doesn't issue a certificate; it is asked again", "name", r.conf.Name)
		}
	}
	return nil
}

// pause is how long to wait after so many failures and this one. What a person has refused isn't asked for each minute.
func pause(err error, failures int) time.Duration {
	if errors.As(err, new(*refusal)) {
		longest := min(time.Minute<<min(failures, 6), time.Hour)
		return longest/2 + rand.N(longest/2)
	}
	_, after := apiclient.Retry(err, failures)
	return after
}

// await waits until that time, for ever if it is zero. It is false if something has changed, or ctx ended.
func (r *Renewer) await(ctx context.Context, at time.Time) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-r.conf.Changed:
	case <-due:
		return true
	}
	return false
}

// due is when the cluster has to be asked for a certificate; zero for never.
func (r *Renewer) due() time.Time {
	wanted := r.conf.Wanted()
	now, err := r.conf.Current()
	switch {
	case wanted == nil, err == nil && now == nil:
		return time.Time{}
	case err != nil:
		return time.Now()
	}
	r.conf.Meter.Valid(now.Leaf.NotAfter)
	if !bytes.Equal(r.known, now.Leaf.Raw) {
		r.known, r.at, r.asked = now.Leaf.Raw, r.renewal(now.Leaf, now.Leaf.NotBefore), nil
	}
	if !covers(now.Leaf, wanted) && (r.asked == nil || !same(r.asked, wanted)) {
		return time.Now()
	}
	return r.at
}

// renewal is when a certificate is to be renewed: after 70 to 90 % of its life, so that nodes that began together don't
// ask all at once. obtained is when that began, by this machine's clock: signers date certificates back. Where the
// clocks differ, only how long it lives counts.
func (r *Renewer) renewal(c *x509.Certificate, obtained time.Time) time.Time {
	if r.conf.Keep {
		return c.NotAfter
	}
	life := c.NotAfter.Sub(c.NotBefore)
	if !obtained.Before(c.NotBefore) && obtained.Before(c.NotAfter) {
		life = c.NotAfter.Sub(obtained)
	}
	return obtained.Add(time.Duration(float64(life) * (0.7 + 0.2*rand.Float64())))
}

// renew asks for a certificate, until there is one, or it isn't wanted any more as it was.
func (r *Renewer) renew(ctx context.Context) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	wanted, ended := r.conf.Wanted(), make(chan error, 1)
	if wanted == nil {
		return nil
	}
	before, _ := r.conf.Current() // there may be none
	var got *tls.Certificate
	go func() {
		ended <- r.conf.Ask(asking, func(ctx context.Context, via Requests) (err error) {
			got, err = r.obtain(ctx, via, wanted)
			return err
		})
	}()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			r.conf.Log.Info("The cluster has issued a certificate", "name", r.conf.Name, "path", r.files.current())
			if err := errors.Join(r.files.forgetKey(), r.used(got)); err != nil {
				return err
			}
			if got == nil {
				return nil
			}
			r.known, r.at, r.asked = got.Leaf.Raw, r.renewal(got.Leaf, time.Now()), wanted
			if before != nil {
				r.conf.Meter.Renewed(time.Since(before.Leaf.NotBefore))
			}
			return nil
		case <-r.conf.Changed:
			if due := r.due(); due.IsZero() || due.After(time.Now()) || !same(wanted, r.conf.Wanted()) {
				stop()
			}
		}
	}
}

// used refuses a certificate that was issued and isn't used for all that: the next one wouldn't be either. It is nil if
// an earlier agent got it.
func (r *Renewer) used(got *tls.Certificate) error {
	now, err := r.conf.Current()
	switch {
	case err != nil:
		return &refusal{r.conf.Name, "the certificate that was issued can't be used: " + err.Error()}
	case now == nil, got == nil, bytes.Equal(now.Leaf.Raw, got.Leaf.Raw): // or none is needed any more
		return nil
	}
	return &refusal{r.conf.Name,
		fmt.Sprintf("the certificate that was issued, in %s (for %q, valid from %s), isn't used: another one is (for "+
			"%q, valid from %s), and only a newer one of the same name would take its place; "+
			"have the kubeconfig name that file, or a certificate of the node", r.files.current(),
			got.Leaf.Subject.CommonName, got.Leaf.NotBefore.Format(time.RFC3339), now.Leaf.Subject.CommonName,
			now.Leaf.NotBefore.Format(time.RFC3339))}
}

// covers reports whether a certificate has all names and addresses that are wanted. A signer may have added others.
func covers(c *x509.Certificate, wanted *x509.CertificateRequest) bool {
	for _, name := range wanted.DNSNames {
		if !slices.Contains(c.DNSNames, name) {
			return false
		}
	}
	for _, ip := range wanted.IPAddresses {
		if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// same reports whether two requests are for the same, but for the key.
func same(a, b *x509.CertificateRequest) bool {
	return a != nil && b != nil && a.Subject.String() == b.Subject.String() && slices.Equal(a.DNSNames, b.DNSNames) &&
		slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}
