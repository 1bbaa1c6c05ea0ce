package lastknown

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// keys encrypt records that must not be on disk in plain text. The first key encrypts; each decrypts the records that
// it encrypted.
type keys []key

// key is an AES-256-GCM key. id identifies it without disclosing it.
type key struct {
	id   string
	aead cipher.AEAD
}

// sealed is an encrypted record.
type sealed struct {
	Key  string `json:"key"`
	Text []byte `json:"sealed"`
}

const (
	keySize = 32
	// maxKeys bounds the key file, in bytes.
	maxKeys = 4096
)

// CheckKeys returns why the keys in a file can't be used (--offline-secrets-key).
func CheckKeys(path string) error {
	_, err := readKeys(path)
	return err
}

// readKeys reads keys from a file that only its owner may read: 32 bytes, or one key in base64 on each line.
func readKeys(path string) (keys, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // don't wait for a pipe's other end
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&^0o400 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, and nobody else than its owner may read it, nor anybody write to "+
			"it: chmod 0400 %[1]s", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err != nil {
		return nil, err
	}
	defer clear(text)
	if len(text) > maxKeys {
		return nil, fmt.Errorf("%s has more than %d bytes: name a file of keys", path, maxKeys)
	}
	if len(text) == keySize {
		k, err := newKey(text)
		return keys{k}, err
	}
	var list keys
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		secret := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
		n, err := base64.StdEncoding.Decode(secret, line)
		if err != nil || n != keySize {
			return nil, fmt.Errorf("%s has neither %d bytes nor a key of %[2]d bytes in base64 on each line: `head "+
				"-c 32 /dev/urandom | base64` makes one", path, keySize)
		}
		k, err := newKey(secret[:n])
		clear(secret)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return list, nil
}

func newKey(secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(append([]byte("deckhand offline secrets\x00"), secret...))
	return key{hex.EncodeToString(sum[:8]), aead}, nil
}

// seal encrypts a record. It can be decrypted only as the record of this name.
func (k keys) seal(name string, text []byte) sealed {
	return sealed{k[0].id, k[0].aead.Seal(nil, nil, text, []byte(name))}
}

var errOtherKey = errors.New("it was encrypted with another key")

// open decrypts a record. current says that it was encrypted with the first key.
func (k keys) open(name string, s sealed) (text []byte, current bool, err error) {
	for i, key := range k {
		if key.id == s.Key {
			text, err = key.aead.Open(nil, nil, s.Text, []byte(name))
			return text, i == 0, err
		}
	}
	return nil, false, errOtherKey
}
