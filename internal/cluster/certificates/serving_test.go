package certificates

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// board has the addresses that the API server tells.
type board struct {
	h   *host
	now atomic.Pointer[[]v1.NodeAddress]
}

func (b *board) set(ips ...string) {
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeInternalDNS, Address: "n1"}}
	for _, ip := range ips {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	b.now.Store(&list)
	b.h.changed.Wake()
	synctest.Wait()
}

func newServing(h *host, s *signers) (*Serving, *board) {
	b := &board{h: h}
	b.now.Store(&[]v1.NodeAddress{})
	return NewServing(ServingConfig{Node: "n1", Dir: h.certs, Addresses: func() []v1.NodeAddress { return *b.now.Load() }, Requests: s, Changed: h.changed, Meter: &h.counts, Troubled: h.troubled.Wake, Expires: h.expire, Log: h.logger()}), b
}

func shows(t *testing.T, s *Serving, ips ...string) {
	t.Helper()
	synctest.Wait()
	c := s.Certificate()
	if c == nil {
		if len(ips) > 0 {
			t.Errorf("nothing is shown, want %q", ips)
		}
		return
	}
	var got []string
	for _, ip := range c.Leaf.IPAddresses {
		got = append(got, ip.String())
	}
	if !slices.Equal(got, ips) || !slices.Equal(c.Leaf.DNSNames, []string{"n1"}) || c.Leaf.Subject.CommonName != "system:node:n1" {
		t.Errorf("shown is one of %s, %q for %q, want %q", c.Leaf.Subject, c.Leaf.DNSNames, got, ips)
	}
}

// The server's certificate has the addresses of the node, is renewed in time and when they change, and is there again after a restart.
func TestServingCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHost(t), newSigners(t)
		serving, b := newServing(h, s)
		stop := run(t, serving.Renewer)
		time.Sleep(time.Hour)
		if _, _, calls := s.asked(); calls != 0 {
			t.Errorf("%d calls without an address", calls)
		}
		b.set("192.0.2.1", "2001:db8::1")
		shows(t, serving, "192.0.2.1", "2001:db8::1")
		b.set("2001:db8::1", "192.0.2.1") // another order
		if made, _, _ := s.asked(); len(made) != 1 {
			t.Errorf("asked %d times for the same", len(made))
		}
		time.Sleep(55 * time.Minute)
		if made, _, _ := s.asked(); len(made) != 2 {
			t.Errorf("asked %d times in the certificate's life", len(made))
		}
		// Nobody approves the next one at first, and the addresses change once more.
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		b.set("192.0.2.2")
		shows(t, serving, "192.0.2.1", "2001:db8::1")
		s.mu.Lock()
		s.silent = false
		s.mu.Unlock()
		b.set("192.0.2.3")
		shows(t, serving, "192.0.2.3")
		made, _, _ := s.asked()
		if last := made[len(made)-1].IPAddresses; len(made) != 4 || len(last) != 1 || !last[0].Equal(net.IPv4(192, 0, 2, 3)) {
			t.Errorf("asked %d times, last for %v", len(made), last)
		}
		stop()
		again, b := newServing(h, s)
		b.set("192.0.2.3")
		stop = run(t, again.Renewer)
		defer stop()
		shows(t, again, "192.0.2.3")
		if after, _, _ := s.asked(); len(after) != len(made) {
			t.Error("asked again after a restart")
		}
		h.listed()
	})
}

// After the clock was set, a certificate is renewed when it is due by the new time: the timer runs for the old one.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHost(t), newSigners(t)
		serving, b := newServing(h, s)
		stop := run(t, serving.Renewer)
		b.set("192.0.2.1")
		shows(t, serving, "192.0.2.1")
		stop()
		serving.at = time.Now().Add(24 * time.Hour) // as before a step of a day
		stop = run(t, serving.Renewer)
		defer stop()
		serving.ClockChanged()
		synctest.Wait()
		if made, _, _ := s.asked(); len(made) != 1 {
			t.Errorf("asked %d times when the clock was set by little", len(made))
		}
		time.Sleep(55 * time.Minute)
		if made, _, _ := s.asked(); len(made) != 2 {
			t.Errorf("asked %d times in the certificate's life", len(made))
		}
	})
}

// A signer that leaves names out isn't asked for them without end.
func TestSignerLeavesNamesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHost(t), newSigners(t)
		s.without = true
		serving, b := newServing(h, s)
		stop := run(t, serving.Renewer)
		defer stop()
		b.set("192.0.2.1")
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if made, _, _ := s.asked(); len(made) < 10 || len(made) > 16 {
			t.Error(fmt.Sprint(len(made), " requests in 10 hours"))
		}
	})
}
