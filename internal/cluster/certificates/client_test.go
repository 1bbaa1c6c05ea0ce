package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"

	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node asks with the other kubeconfig for its first certificate, and as itself for all that follow, each with a key of its own, after 70 to 90 % of
// the life of the one before; and it does nothing between.
func TestClientCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, own, first := newHost(t), newSigners(t), newSigners(t)
		stop := run(t, h.client(own, first, nil))
		defer stop()
		time.Sleep(time.Second)
		text, err := os.ReadFile(h.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"server: https://192.0.2.1:6443", "tls-server-name: api", "client-certificate: " + h.certs + "/kubelet-client-current.pem", "client-key: " + h.certs + "/kubelet-client-current.pem"} {
			if !strings.Contains(string(text), want) || strings.Contains(string(text), "secret-token") {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		const rotations = 20
		at := []time.Time{time.Now()}
		for range rotations {
			time.Sleep(55 * time.Minute) // one is due after 42 to 54
			synctest.Wait()
			cert, err := apiclient.ClientCertificate(h.kubeconfig, "")
			if err != nil || cert.Leaf.Subject.CommonName != "system:node:n1" || !slices.Equal(cert.Leaf.Subject.Organization, []string{"system:nodes"}) {
				t.Fatalf("%+v, %v", cert, err)
			}
		}
		made, times, calls := own.asked()
		at = append(at, times...)
		if len(made) < rotations || calls != 2*len(made) {
			t.Errorf("%d requests by %d calls, want %d by a call and a watch each", len(made), calls, rotations)
		}
		for i := range times {
			if d := at[i+1].Sub(at[i]); d < 42*time.Minute-time.Second || d > 54*time.Minute {
				t.Errorf("certificate %d was asked for after %s", i, d)
			}
			for _, other := range made[:i] {
				if other.PublicKey.(*ecdsa.PublicKey).Equal(made[i].PublicKey) {
					t.Error("a key was used again")
				}
			}
		}
		if made, _, _ := first.asked(); len(made) != 1 {
			t.Errorf("the other kubeconfig was used %d times", len(made))
		}
		if got, want := h.listed(), []string{"kubelet-client-DATE.pem 2", "kubelet-client-current.pem 1"}; !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
		link, err := os.Readlink(filepath.Join(h.certs, "kubelet-client-current.pem"))
		if err != nil || filepath.Dir(link) != h.certs {
			t.Errorf("the current certificate is a link to %q, %v", link, err)
		}
		if n := len(h.counts.ages); n < rotations || h.counts.ages[0] < 42*time.Minute || h.counts.ages[0] > time.Hour || h.counts.failed > 0 || time.Until(h.counts.until) < 0 || time.Until(h.counts.until) > time.Hour {
			t.Errorf("counted are %+v", &h.counts)
		}
		if h.logged("PRIVATE") > 0 || h.logged("secret-token") > 0 {
			t.Error("a secret was logged")
		}
	})
}

// Killed at any step, the next agent ends with a kubeconfig that can be used, and the cluster was asked once.
func TestKilledWhileJoining(t *testing.T) {
	for name, undo := range map[string]func(h *host, key []byte){
		"before the request was answered": func(h *host, key []byte) {
			removeAll(h.t, h.kubeconfig, h.certs+"/*")
			h.write(filepath.Join(h.certs, "kubelet-client.key.tmp"), string(key))
		},
		"before the link was made": func(h *host, key []byte) {
			removeAll(h.t, h.kubeconfig, h.certs+"/*-current.pem")
			h.write(filepath.Join(h.certs, "kubelet-client.key.tmp"), string(key))
		},
		"before the link was put in place": func(h *host, key []byte) {
			removeAll(h.t, h.kubeconfig)
			current := ClientFile(h.certs)
			if err := os.Rename(current, strings.Replace(current, "current", "updated", 1)); err != nil {
				h.t.Fatal(err)
			}
			h.write(filepath.Join(h.certs, "kubelet-client.key.tmp"), string(key))
		},
		"before the kubeconfig was written": func(h *host, key []byte) {
			removeAll(h.t, h.kubeconfig)
			h.write(filepath.Join(h.certs, "kubelet-client.key.tmp"), string(key))
		},
		"before the key was forgotten": func(h *host, key []byte) {
			h.write(filepath.Join(h.certs, "kubelet-client.key.tmp"), string(key))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, own, first := newHost(t), newSigners(t), newSigners(t)
				var key []byte
				first.created = func() { key, _ = os.ReadFile(filepath.Join(h.certs, "kubelet-client.key.tmp")) }
				stop := run(t, h.client(own, first, nil))
				synctest.Wait()
				stop()
				undo(h, key)
				time.Sleep(time.Minute)
				stop = run(t, h.client(own, first, nil))
				defer stop()
				synctest.Wait()
				cert, err := apiclient.ClientCertificate(h.kubeconfig, "")
				if err != nil {
					t.Fatal(err)
				}
				made, _, _ := first.asked()
				if len(made) != 1 || !made[0].PublicKey.(*ecdsa.PublicKey).Equal(cert.Leaf.PublicKey) {
					t.Errorf("asked %d times", len(made))
				}
				time.Sleep(55 * time.Minute)
				synctest.Wait()
				if made, _, _ := own.asked(); len(made) != 1 || made[0].PublicKey.(*ecdsa.PublicKey).Equal(cert.Leaf.PublicKey) {
					t.Errorf("renewed %d times", len(made))
				}
				h.listed()
			})
		})
	}
}

// The first certificate is used though what it was asked for with is gone by then: the file while the request waits, or what it says for the next
// agent.
func TestBootstrapThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, own, first := newHost(t), newSigners(t), newSigners(t)
		first.created = func() { removeAll(t, h.rejoined) }
		stop := run(t, h.client(own, first, nil))
		synctest.Wait()
		stop()
		if cert, err := apiclient.ClientCertificate(h.kubeconfig, ""); err != nil || cert == nil {
			t.Errorf("the file was removed: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h, own, first := newHost(t), newSigners(t), newSigners(t)
		stop := run(t, h.client(own, first, nil))
		synctest.Wait()
		stop()
		removeAll(t, h.kubeconfig)
		stop = run(t, h.client(own, first, func(c *ClientConfig) {
			c.AsBootstrap = func(context.Context, func(context.Context, Requests) error) error {
				t.Error("it asks once more")
				return errors.New("the token has expired")
			}
		}))
		defer stop()
		synctest.Wait()
		if cert, err := apiclient.ClientCertificate(h.kubeconfig, ""); err != nil || cert == nil {
			t.Errorf("the token has expired: %v", err)
		}
		time.Sleep(55 * time.Minute)
		synctest.Wait()
		if made, _, _ := own.asked(); len(made) != 1 {
			t.Errorf("renewed %d times", len(made))
		}
	})
}

func removeAll(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A request that is refused isn't made again as it was, and rarely; one that nobody answers is waited for, and made again when it was removed.
func TestRequestsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHost(t), newSigners(t)
		s.deny = true
		renewer := h.client(s, s, nil)
		stop := run(t, renewer)
		defer stop()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		<-h.troubled
		if p := renewer.Problem(); !strings.Contains(p.Message, "Denied (No: not this one)") || p.Origin != ClientFile(h.certs) {
			t.Errorf("the problem is %+v", p)
		}
		made, at, _ := s.asked()
		if len(made) < 24 || len(made) > 60 || at[1].Sub(at[0]) < 30*time.Second {
			t.Errorf("refused %d times in a day", len(made))
		}
		if made[0].PublicKey.(*ecdsa.PublicKey).Equal(made[1].PublicKey) {
			t.Error("the refused key was used again")
		}
		if h.counts.failed != len(made) {
			t.Errorf("%d failures are counted", h.counts.failed)
		}
		if h.logged("Denied (No: not this one)") != len(made) {
			t.Errorf("the reason is logged %d times for %d requests", h.logged("Denied (No: not this one)"), len(made))
		}
		s.mu.Lock()
		s.deny, s.silent = false, true
		s.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		_, _, before := s.asked()
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		made, _, calls := s.asked()
		if calls != before {
			t.Errorf("%d calls while nobody answers", calls-before)
		}
		if p := renewer.Problem(); !strings.Contains(p.Message, "run: kubectl certificate approve node-csr-") || time.Since(p.Since) < 48*time.Hour {
			t.Errorf("the problem is %+v", p)
		}
		s.mu.Lock()
		s.silent = false
		s.mu.Unlock()
		s.remove()
		time.Sleep(time.Minute)
		synctest.Wait()
		again, _, _ := s.asked()
		if _, err := apiclient.ClientCertificate(h.kubeconfig, ""); err != nil || len(again) != len(made)+1 || !again[len(made)].PublicKey.(*ecdsa.PublicKey).Equal(made[len(made)-1].PublicKey) {
			t.Errorf("%d requests after one was removed, %v", len(again)-len(made), err)
		}
		<-h.troubled
		if p := renewer.Problem(); p.Message != "" {
			t.Errorf("the problem is still %+v", p)
		}
	})
}

// Neither a clock that differs from the signer's nor certificates that live shorter than they are dated back make the node ask without end.
func TestClocksThatDiffer(t *testing.T) {
	for name, set := range map[string]func(*signers){
		"the node's is behind":   func(s *signers) { s.ahead = 3 * time.Hour },
		"the node's is ahead":    func(s *signers) { s.ahead = -3 * time.Hour },
		"backdated by a quarter": func(s *signers) { s.backdate = 15 * time.Minute },
		"backdated by 16 lives":  func(s *signers) { s.backdate = 16 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newHost(t), newSigners(t)
				set(s)
				stop := run(t, h.client(s, s, nil))
				defer stop()
				time.Sleep(10 * time.Hour)
				synctest.Wait()
				if made, _, _ := s.asked(); len(made) < 9 || len(made) > 16 {
					t.Errorf("%d requests in 10 hours", len(made))
				}
			})
		})
	}
}

// A certificate that the API server refuses, for it has ended by the clock there, is one that the node asks for again with the other kubeconfig, once; and goes on
// with if it was another trouble that has passed.
func TestRefusedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, own, first := newHost(t), newSigners(t), newSigners(t)
		var no atomic.Bool
		stop := run(t, h.client(own, first, func(c *ClientConfig) { c.Refused = no.Load }))
		defer stop()
		asked := func(want int) {
			t.Helper()
			h.changed.Wake()
			time.Sleep(time.Minute)
			synctest.Wait()
			asOwn, _, _ := own.asked()
			if made, _, _ := first.asked(); len(made) != want || len(asOwn) > 0 {
				t.Fatalf("asked with the other kubeconfig %d times, want %d, and as the node %d times", len(made), want, len(asOwn))
			}
		}
		asked(1)
		no.Store(true)
		asked(2)
		asked(2) // what refuses that, too, isn't a clock
		no.Store(false)
		asked(2)
		if h.counts.failed > 0 {
			t.Errorf("counted are %+v", &h.counts)
		}
		removeAll(t, h.rejoined)
		no.Store(true)
		asked(2)
	})
}

// Who may ask: a node whose certificate has expired, with the other kubeconfig if that is there; and nobody asks for what isn't wanted.
func TestWhoAsks(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(h *host, c *ClientConfig)
		own, first int
	}{
		{"expired", func(*host, *ClientConfig) {}, 0, 1},
		{"expired, and the other kubeconfig is gone", func(h *host, _ *ClientConfig) { removeAll(h.t, h.rejoined) }, 1, 0},
		{"expired, and there never was another", func(_ *host, c *ClientConfig) { c.Bootstrap = "" }, 1, 0},
		{"expired, not rotated", func(_ *host, c *ClientConfig) { c.Rotate = false }, 0, 1},
		{"expired, not rotated, no other", func(_ *host, c *ClientConfig) { c.Rotate, c.Bootstrap = false, "" }, 0, 0},
		{"the kubeconfig is broken", func(h *host, _ *ClientConfig) { h.write(h.kubeconfig, "{") }, 0, 1},
		{"the kubeconfig is broken, and there is no other", func(h *host, c *ClientConfig) { h.write(h.kubeconfig, "{"); c.Bootstrap = "" }, 0, 0},
		{"the certificate is gone", func(h *host, _ *ClientConfig) { removeAll(h.t, h.certs+"/*") }, 0, 1},
		{"a token", func(h *host, _ *ClientConfig) {
			text, err := os.ReadFile(h.rejoined)
			if err != nil {
				h.t.Fatal(err)
			}
			h.write(h.kubeconfig, string(text))
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, before, own, first := newHost(t), newSigners(t), newSigners(t), newSigners(t)
				stop := run(t, h.client(before, before, nil))
				synctest.Wait()
				stop()
				time.Sleep(2 * time.Hour)
				stop = run(t, h.client(own, first, func(conf *ClientConfig) { c.change(h, conf) }))
				defer stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				asOwn, _, _ := own.asked()
				asFirst, _, _ := first.asked()
				if len(asOwn) != c.own || len(asFirst) != c.first {
					t.Errorf("asked as the node %d times, with the other kubeconfig %d, want %d and %d", len(asOwn), len(asFirst), c.own, c.first)
				}
			})
		})
	}
}

// A certificate that is issued and not used, as beside a kubeconfig with another user's, isn't asked for again and again, and a person is told.
func TestIssuedAndNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, other := newHost(t), newSigners(t), newHost(t)
		stop := run(t, other.client(newSigners(t), newSigners(t), func(c *ClientConfig) { c.Node = "n2" }))
		synctest.Wait()
		stop()
		renewer := h.client(s, s, func(c *ClientConfig) { c.Kubeconfig, c.Bootstrap = other.kubeconfig, "" })
		stop = run(t, renewer)
		defer stop()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if made, _, _ := s.asked(); len(made) < 20 || len(made) > 60 || h.counts.failed != len(made) || len(h.counts.ages) > 0 {
			t.Errorf("%d requests in a day, counted are %+v", len(made), &h.counts)
		}
		if p := renewer.Problem(); !strings.Contains(p.Message, `(for "system:node:n1"`) || !strings.Contains(p.Message, `another one is (for "system:node:n2"`) {
			t.Errorf("the problem is %+v", p)
		}
	})
}

// A person who writes a kubeconfig ends the wait for one.
func TestKubeconfigWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, other := newHost(t), newSigners(t), newHost(t)
		stop := run(t, other.client(s, s, nil))
		synctest.Wait()
		stop()
		s.silent = true
		stop = run(t, h.client(s, s, nil))
		defer stop()
		synctest.Wait()
		text, err := os.ReadFile(other.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Dir(h.kubeconfig), 0o700); err != nil {
			t.Fatal(err)
		}
		h.write(h.kubeconfig, string(text))
		h.changed.Wake()
		synctest.Wait()
		for _, r := range s.has {
			r.Status.Certificate = s.issue(s.made[1])
		}
		s.changed.Wake()
		synctest.Wait()
		if got := h.listed(); !slices.Equal(got, []string{"kubelet-client.key.tmp 1"}) {
			t.Errorf("files %q", got)
		}
	})
}

// A person who writes a kubeconfig after the cluster has refused a certificate ends the trouble.
func TestTroubleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, other := newHost(t), newSigners(t), newHost(t)
		stop := run(t, other.client(s, s, nil))
		synctest.Wait()
		stop()
		s.deny = true
		renewer := h.client(s, s, nil)
		stop = run(t, renewer)
		defer stop()
		time.Sleep(10 * time.Second)
		if p := renewer.Problem(); p.Message == "" {
			t.Error("no problem")
		}
		if err := os.CopyFS(filepath.Dir(h.kubeconfig), os.DirFS(filepath.Dir(other.kubeconfig))); err != nil {
			t.Fatal(err)
		}
		h.changed.Wake()
		synctest.Wait()
		if p := renewer.Problem(); p.Message != "" {
			t.Errorf("the problem is still %+v", p)
		}
	})
}

// A request that somebody else made under the same name isn't taken for the node's.
func TestForeignRequest(t *testing.T) {
	h, s := newHost(t), newSigners(t)
	r := h.client(s, s, nil)
	key, err := r.files.nextKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	wanted := &x509.CertificateRequest{Subject: subject("n1")}
	mine, err := r.request(wanted, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.files.forgetKey(); err != nil {
		t.Fatal(err)
	}
	foreign, err := r.files.nextKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := r.request(wanted, foreign)
	if err != nil || theirs.Name == mine.Name {
		t.Fatalf("two keys, one name: %v", err)
	}
	for name, change := range map[string]func(*certificates.CertificateSigningRequest){
		"key":    func(c *certificates.CertificateSigningRequest) { c.Spec.Request = theirs.Spec.Request },
		"signer": func(c *certificates.CertificateSigningRequest) { c.Spec.SignerName = "other" },
		"text":   func(c *certificates.CertificateSigningRequest) { c.Spec.Request = []byte("x") },
	} {
		there := mine.DeepCopy()
		change(there)
		there.Status.Certificate = []byte("one")
		s.has[mine.Name] = there
		if _, err := r.answer(context.Background(), s, mine); err == nil || !strings.Contains(err.Error(), "somebody else has made one of that name") {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// TestExpires: a certificate that can't be renewed, because that is denied or nobody answers, is warned of once, a day before its
// end.
func TestExpires(t *testing.T) {
	for why, fail := range map[string]func(*signers){"signing request node-csr": func(s *signers) { s.deny = true }, "kubectl certificate approve": func(s *signers) { s.silent = true }} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newHost(t), newSigners(t)
			s.life = 100 * 24 * time.Hour
			defer run(t, h.client(s, s, nil))()
			synctest.Wait()
			s.mu.Lock()
			fail(s)
			s.mu.Unlock()
			end := time.Now().Add(s.life)
			warnings := func() []string {
				h.mu.Lock()
				defer h.mu.Unlock()
				return slices.Clone(h.expires)
			}
			time.Sleep(s.life - 25*time.Hour)
			early := warnings()
			time.Sleep(24 * time.Hour)
			got := warnings()
			if len(early) != 0 || len(got) != 1 {
				t.Fatalf("%q before the last day, and in all: %q", early, got)
			}
			at, message, _ := strings.Cut(got[0], " ")
			if when, err := time.Parse(time.RFC3339, at); err != nil || end.Sub(when) < 22*time.Hour || !strings.Contains(message, why) ||
				!strings.HasPrefix(message, "The certificate in "+ClientFile(h.certs)+" ends at "+end.UTC().Format(time.RFC3339)+" and can't be renewed: ") {
				t.Errorf("the warning is %q, the certificate ends at %s", got[0], end)
			}
		})
	}
}

// TestFinalCertificateExpires: with rotateCertificates false, the end of a certificate is warned of once, a day before,
// unless another one is requested with the bootstrap kubeconfig then.
func TestFinalCertificateExpires(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(h *host, c *ClientConfig)
		want   int
	}{
		{"no bootstrap kubeconfig", func(_ *host, c *ClientConfig) { c.Bootstrap = "" }, 1},
		{"the bootstrap kubeconfig is gone", func(h *host, _ *ClientConfig) { removeAll(h.t, h.rejoined) }, 1},
		{"with a bootstrap kubeconfig", func(*host, *ClientConfig) {}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newHost(t), newSigners(t)
				s.life = 100 * 24 * time.Hour
				end := time.Now().Add(s.life)
				stop := run(t, h.client(s, s, nil))
				synctest.Wait()
				stop()
				defer run(t, h.client(s, s, func(conf *ClientConfig) {
					conf.Rotate = false
					c.change(h, conf)
				}))()
				time.Sleep(s.life - 25*time.Hour)
				h.mu.Lock()
				early := len(h.expires)
				h.mu.Unlock()
				time.Sleep(25*time.Hour - time.Minute)
				h.changed.Wake()
				synctest.Wait()
				h.mu.Lock()
				got := slices.Clone(h.expires)
				h.mu.Unlock()
				if early != 0 || len(got) != c.want {
					t.Fatalf("%d warnings before the last day, and in all: %q", early, got)
				}
				for _, warning := range got {
					want := end.Add(-24*time.Hour).UTC().Format(time.RFC3339) + " The certificate in " + h.kubeconfig + " ends at " +
						end.UTC().Format(time.RFC3339) + " and can't be renewed: rotateCertificates is false, "
					if !strings.HasPrefix(warning, want) {
						t.Errorf("the warning is\n%q, want\n%q", warning, want)
					}
				}
			})
		})
	}
}
