package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// files are the files of one certificate, laid out like the kubelet's: NAME-current.pem is a symlink to
// NAME-DATE.pem, which holds the certificate and its key. NAME.key.tmp is the key of a request that isn't
// answered yet.
type files struct{ dir, name string }

const (
	dated   = "2006-01-02-15-04-05"
	anyDate = "-????-??-??-??-??-??.pem"
	maxFile = 1 << 20
)

func (f files) path(end string) string { return filepath.Join(f.dir, f.name+end) }
func (f files) current() string        { return f.path("-current.pem") }
func (f files) pending() string        { return f.path(".key.tmp") }

// load reads the current certificate and its key.
func (f files) load() (*tls.Certificate, error) {
	text, err := safeopen.ReadRegular(f.current(), maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.current(), err)
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.current(), err)
	}
	return &pair, nil
}

// nextKey returns the key of the next request: the key of the unanswered request if there is one, or a new key. It
// never returns the key of the current certificate, the parameter now (nil for none).
func (f files) nextKey(now *tls.Certificate) (*ecdsa.PrivateKey, error) {
	if text, err := safeopen.ReadRegular(f.pending(), maxFile); err == nil {
		if block, _ := pem.Decode(text); block != nil {
			key, err := x509.ParseECPrivateKey(block.Bytes)
			if err == nil && (now == nil || !key.PublicKey.Equal(now.Leaf.PublicKey)) {
				return key, nil
			}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := encode(key)
	if err != nil {
		return nil, err
	}
	return key, atomicfile.Write(f.pending(), text, 0o600)
}

func encode(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// forgetKey removes the key of the unanswered request.
func (f files) forgetKey() error {
	if err := os.Remove(f.pending()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// save makes a certificate the current one. NAME-current.pem exists all the time. The previous certificate is
// kept, older ones are removed.
func (f files) save(cert []byte, key *ecdsa.PrivateKey, now time.Time) (*tls.Certificate, error) {
	text, err := encode(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, text)
	if err != nil {
		return nil, &refusal{f.name, "the issued certificate can't be used: " + err.Error()}
	}
	path, link := f.path("-"+now.Format(dated)+".pem"), f.path("-updated.pem")
	if err := atomicfile.Write(path, append(append(slices.Clone(cert), '\n'), text...), 0o600); err != nil {
		return nil, err
	}
	before, _ := os.Readlink(f.current()) // empty if there is none
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := errors.Join(os.Symlink(path, link), os.Rename(link, f.current()), atomicfile.SyncDir(f.dir)); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(f.path(anyDate)) // fails for bad patterns only
	for _, p := range old {
		if p != path && filepath.Base(p) != filepath.Base(before) {
			_ = os.Remove(p) // the next save tries again
		}
	}
	return &pair, nil
}
