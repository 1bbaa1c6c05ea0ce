package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// ErrNewer means that a file was written by a newer deckhand.
var ErrNewer = errors.New("it was written by a newer version of deckhand")

// Version returns the format version in a file's text; 0 if there is none.
func Version(text []byte) (int, error) {
	var head struct {
		Version int `json:"version"`
	}
	err := json.Unmarshal(text, &head)
	return head.Version, err
}

// CheckVersion checks the format version in a file's text. The error wraps ErrNewer if the version is higher than
// newest: the rest of the file may then have any format.
func CheckVersion(text []byte, newest int) error {
	version, err := Version(text)
	if err == nil && version > newest {
		return fmt.Errorf("%w (format %d, this one knows up to %d)", ErrNewer, version, newest)
	}
	return err
}

// Sum is the checksum of data: "sha256:" and hexadecimal digits.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// content is the JSON form of a sealed file.
type content struct {
	Version int             `json:"version"`
	Sum     string          `json:"sum"`
	Data    json.RawMessage `json:"data"`
}

// Seal returns the text of a file in this version of the format, with its checksum and v as JSON.
func Seal(version int, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(content{Version: version, Sum: Sum(data), Data: data})
}

// Open checks a text that Seal returned with the same version, and decodes it into v. The error wraps ErrNewer if
// the text has a newer version. After any error v may be partly filled.
func Open(text []byte, version int, v any) error {
	if err := CheckVersion(text, version); err != nil {
		return err
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if c.Version != version {
		return fmt.Errorf("it is of format %d", c.Version)
	}
	if c.Sum != Sum(c.Data) {
		return errors.New("its checksum doesn't match")
	}
	return json.Unmarshal(c.Data, v)
}

// ReadFile reads the file at path, which WriteFile has written, into v. found is false if the file is missing or
// can't be used; in the latter case there is also an error, and v may be partly filled. A corrupt file has been
// renamed to end in ".corrupt"; a file of a newer version (ErrNewer) is left alone.
func ReadFile(path string, version int, v any) (found bool, err error) {
	Sweep(path)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err = Open(text, version, v); err != nil && !errors.Is(err, ErrNewer) {
		_, moveErr := SetAside(path)
		err = errors.Join(err, moveErr)
	}
	return err == nil, err
}

// WriteFile replaces the file at path with v in this version of the format. It creates a missing directory with
// mode 0700. Once it has returned nil, the file survives a loss of power.
func WriteFile(path string, version int, v any) error {
	text, err := Seal(version, v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

// SetAside renames a damaged file to end in ".corrupt", and returns the new path. It replaces an earlier file of
// that name.
func SetAside(path string) (aside string, err error) {
	aside = path + ".corrupt"
	return aside, os.Rename(path, aside)
}

// Sweep removes temporary files that an interrupted write of package atomicfile has left beside path. Errors are
// ignored, because such files do no harm.
func Sweep(path string) {
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)+".tmp-"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
