// Package certificates requests certificates of this node from the cluster: the client certificate that it
// presents to the API server, and the serving certificate of its HTTPS server. Each has a key of its own, and is
// renewed before it expires.
package certificates

import (
	"bytes"
	"cmp"
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
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Config configures a Renewer.
type Config struct {
	// Signer signs the certificates; Usage is their extended key usage.
	Signer string
	Usage  certificates.KeyUsage
	// Dir is the certificate directory (--cert-dir), Name the prefix of file names there.
	Dir, Name string
	// Keep renews the certificate only when it has expired, not before. Final then returns the path of the file that
	// names the certificate, and the reason why no certificate follows it; the reason is empty if one does.
	Keep  bool
	Final func() (file, why string)
	// Wanted is the request that is needed at the moment, without a key; nil for none.
	Wanted func() *x509.CertificateRequest
	// Current is the certificate in use; nil if none is needed. An error says that a needed one is missing or
	// unusable.
	Current func() (*tls.Certificate, error)
	// Ask calls the function do with the API server's certificate signing requests, unless no request is needed. A
	// certificate that do saves is in use when Ask returns.
	Ask func(ctx context.Context, do func(context.Context, Requests) error) error
	// Changed receives when the result of Wanted or Current may have changed.
	Changed <-chan struct{}
	Meter   Meter
	// Troubled is called when the result of Renewer.Problem has changed.
	Troubled func()
	// Expires is called with a message once for each certificate that ends soon and couldn't be renewed.
	Expires func(message string)
	Log     logr.Logger
}

// Meter counts renewals. Its methods may be called concurrently.
type Meter interface {
	// Valid sets when the certificate in use expires.
	Valid(until time.Time)
	// Renewed counts a replaced certificate, of this age.
	Renewed(age time.Duration)
	// Failed counts an attempt that yielded no certificate.
	Failed()
}

// Renewer keeps one certificate of the node valid.
type Renewer struct {
	conf  Config
	files files

	// known is the certificate (DER) to which at and asked belong. at is the time of its renewal; zero until that is
	// computed. asked is the request for which the certificate was issued; nil if an earlier agent obtained it.
	known []byte
	at    time.Time
	asked *x509.CertificateRequest
	// warned is the certificate (DER) for which Expires was called last.
	warned []byte
	// clock receives after the clock was set.
	clock wake.Slot

	mu      sync.Mutex
	problem pod.Problem
}

// New returns a Renewer. It does nothing before Run.
func New(c Config) *Renewer {
	return &Renewer{conf: c, files: files{c.Dir, c.Name}, clock: wake.NewSlot()}
}

// ClockChanged makes Run compute the time of the renewal again, because the clock was set or the machine was suspended:
// the timer for the renewal doesn't follow the clock.
func (r *Renewer) ClockChanged() { r.clock.Wake() }

// patience is how long a problem lasts before Problem returns it: most problems pass by themselves.
const patience = 5 * time.Second

// Problem is why the cluster doesn't issue the certificate. Its message is empty if there is no problem.
func (r *Renewer) Problem() pod.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.problem.Since) < patience {
		return pod.Problem{}
	}
	return r.problem
}

// trouble sets the problem; an empty message clears it.
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

// Name is the prefix of the certificate's file names.
func (r *Renewer) Name() string { return r.conf.Name }

// Run renews the certificate in time until ctx ends. It sleeps between renewals. The error is nil.
func (r *Renewer) Run(ctx context.Context) error {
	var again time.Time // earliest time of the next attempt
	failures, last := 0, logging.LastError{}
	for ctx.Err() == nil {
		due := r.due()
		switch {
		case due.IsZero(), due.After(time.Now()): // nothing is due
			failures, last, again = 0, logging.LastError{}, time.Time{}
			r.trouble("")
		case due.Before(again):
			due = again
		}
		warning := r.finalWarning()
		if !warning.IsZero() && (due.IsZero() || warning.Before(due)) {
			if r.await(ctx, warning) {
				r.warnFinal()
			}
			continue
		}
		if !r.await(ctx, due) {
			continue
		}
		err := r.renew(ctx)
		if err == nil || errors.Is(err, context.Canceled) { // a certificate was issued, or the wanted one has changed
			continue
		}
		r.trouble(err.Error())
		r.warn(r.files.current(), err.Error())
		r.conf.Meter.Failed()
		again = time.Now().Add(pause(err, failures))
		failures++
		if !apiclient.Unusable(err) {
			last.Log(r.conf.Log, err, "The cluster doesn't issue a certificate; it is asked again", "name", r.conf.Name)
		}
	}
	return nil
}

// warnsFrom is when Expires is called for a certificate that isn't renewed: a day before its end, or in the last
// twentieth of a shorter life.
func warnsFrom(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(24*time.Hour, c.NotAfter.Sub(c.NotBefore)/20))
}

// finalWarning is when warnFinal is due; zero for never.
func (r *Renewer) finalWarning() time.Time {
	if now := r.unwarned(); r.conf.Keep && now != nil {
		return warnsFrom(now)
	}
	return time.Time{}
}

// warnFinal calls Expires if the certificate in use won't be renewed before its end, and no other certificate follows
// it.
func (r *Renewer) warnFinal() {
	if file, why := r.conf.Final(); why != "" {
		r.warn(file, why)
	} else if now := r.unwarned(); now != nil {
		r.warned = now.Raw
	}
}

// warn calls Expires if the certificate in use ends soon. file is the path of the file that names the certificate, and
// why the reason why it can't be renewed.
func (r *Renewer) warn(file, why string) {
	now := r.unwarned()
	if now == nil || time.Now().Before(warnsFrom(now)) {
		return
	}
	r.warned = now.Raw
	r.conf.Expires(fmt.Sprintf("The certificate in %s ends at %s and can't be renewed: %s", file,
		now.NotAfter.UTC().Format(time.RFC3339), why))
}

// unwarned is the certificate in use; nil if there is none, it has ended, or Expires was called for it.
func (r *Renewer) unwarned() *x509.Certificate {
	now, err := r.conf.Current()
	if err != nil || now == nil || bytes.Equal(r.warned, now.Leaf.Raw) || !time.Now().Before(now.Leaf.NotAfter) {
		return nil
	}
	return now.Leaf
}

// pause is how long to wait after the error of a request. failures is the number of failures in a row before it.
// After a refusal, which may be a person's decision, the wait grows up to an hour.
func pause(err error, failures int) time.Duration {
	if errors.As(err, new(*refusal)) {
		longest := min(time.Minute<<min(failures, 6), time.Hour)
		return longest/2 + rand.N(longest/2)
	}
	_, after := apiclient.Retry(err, failures)
	return after
}

// await waits until the time at, or forever if at is zero. It returns false earlier if Changed receives, the clock was
// set, or ctx ends.
func (r *Renewer) await(ctx context.Context, at time.Time) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		due = time.After(time.Until(at))
	}
	select {
	case <-ctx.Done():
	case <-r.conf.Changed:
	case <-r.clock:
		r.at = time.Time{}
	case <-due:
		return true
	}
	return false
}

// due is when to request a certificate; zero for never.
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
		r.known, r.at, r.asked = now.Leaf.Raw, time.Time{}, nil
	}
	if r.at.IsZero() {
		r.at = r.renewal(now.Leaf, now.Leaf.NotBefore)
	}
	if !covers(now.Leaf, wanted) && (r.asked == nil || !same(r.asked, wanted)) {
		return time.Now()
	}
	return r.at
}

// renewal is when to renew a certificate: after 70 to 90 % of its lifetime, so that nodes that started together don't
// ask all at once. The lifetime begins at obtained, when this machine received the certificate: signers backdate
// NotBefore. If obtained isn't within the certificate's validity, because the clocks differ, the lifetime begins at
// NotBefore. With Keep, renewal is NotAfter.
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

// renew requests a certificate. It returns when the certificate is issued, or when Wanted has changed.
func (r *Renewer) renew(ctx context.Context) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	wanted, ended := r.conf.Wanted(), make(chan error, 1)
	if wanted == nil {
		return nil
	}
	before, _ := r.conf.Current() // nil if there is none
	var expires <-chan time.Time
	if before != nil {
		expires = time.After(time.Until(warnsFrom(before.Leaf)))
	}
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
		case <-expires: // nobody answers the request
			r.mu.Lock()
			why := r.problem.Message
			r.mu.Unlock()
			r.warn(r.files.current(), cmp.Or(why, "the cluster hasn't answered yet"))
		case <-r.conf.Changed:
			if due := r.due(); due.IsZero() || due.After(time.Now()) || !same(wanted, r.conf.Wanted()) {
				stop()
			}
		}
	}
}

// used returns a refusal if the issued certificate isn't in use: then another issued certificate wouldn't be used,
// either. got is nil if an earlier agent obtained the certificate.
func (r *Renewer) used(got *tls.Certificate) error {
	now, err := r.conf.Current()
	switch {
	case err != nil:
		return &refusal{r.conf.Name, "the certificate that was issued can't be used: " + err.Error()}
	case now == nil, got == nil, bytes.Equal(now.Leaf.Raw, got.Leaf.Raw): // or no certificate is needed any more
		return nil
	}
	return &refusal{r.conf.Name,
		fmt.Sprintf("the certificate that was issued, in %s (for %q, valid from %s), isn't used: another one is (for "+
			"%q, valid from %s), and only a newer one of the same name would take its place; "+
			"have the kubeconfig name that file, or a certificate of the node", r.files.current(),
			got.Leaf.Subject.CommonName, got.Leaf.NotBefore.Format(time.RFC3339), now.Leaf.Subject.CommonName,
			now.Leaf.NotBefore.Format(time.RFC3339))}
}

// covers reports whether a certificate includes the requested names and addresses. A signer may add others.
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

// same reports whether two requests are equal, apart from their keys.
func same(a, b *x509.CertificateRequest) bool {
	return a != nil && b != nil && a.Subject.String() == b.Subject.String() && slices.Equal(a.DNSNames, b.DNSNames) &&
		slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}
