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

// ErrNewer says that a file was written by a newer deckhand.
var ErrNewer = errors.New("it was written by a newer version of deckhand")

// Version reads the version that a file's text names; 0 for none.
func Version(text []byte) (int, error) {
	var head struct {
		Version int `json:"version"`
	}
	err := json.Unmarshal(text, &head)
	return head.Version, err
}

// CheckVersion reads the version that a file's text names. The error wraps ErrNewer if that is later than newest: the
// rest may be of any shape then.
func CheckVersion(text []byte, newest int) error {
	version, err := Version(text)
	if err == nil && version > newest {
		return fmt.Errorf("%w (format %d, this one knows up to %d)", ErrNewer, version, newest)
	}
	return err
}

// Sum is the sum of a file's content.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// content is the text of a file whose content is one value.
type content struct {
	Version int             `json:"version"`
	Sum     string          `json:"sum"`
	Data    json.RawMessage `json:"data"`
}

// Seal is the text of a file of this version that holds v, as encoding/json has it.
func Seal(version int, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(content{Version: version, Sum: Sum(data), Data: data})
}

// Open decodes a text of Seal with the same version into v. The error wraps ErrNewer for one of a newer version; after
// any error v may be filled in part.
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

// ReadFile reads a file of WriteFile at path into v. found is false if the file is missing or can't be used: then the
// error says why, and v may be filled in part. A corrupt file has been renamed to end in ".corrupt"; one of a newer
// version (ErrNewer) is left alone.
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

// WriteFile replaces the file by one of this version that holds v, and makes its directory if need be (mode 0700). It
// survives a loss of power once that returned nil.
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

// SetAside renames a damaged file, in place of an older one, and returns its new path.
func SetAside(path string) (aside string, err error) {
	aside = path + ".corrupt"
	return aside, os.Rename(path, aside)
}

// Sweep removes temporary files that atomicfile's interrupted writes left behind. If that fails they stay, which harms
// nothing.
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
