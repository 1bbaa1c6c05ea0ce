package nodeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// hostLogs serves the files of the host's log directory. Pods may be able to write there, so links can't lead out of
// it, and only regular files and directories are opened.
func (a *api) hostLogs(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("path") == "" && r.URL.Query().Has("query") {
		if !a.SystemLogQuery { // a directory listing would be a misleading answer to a query
			http.Error(w, noLogQuery, http.StatusMethodNotAllowed)
			return
		}
		a.hostQuery(w, r)
		return
	}
	http.StripPrefix("/logs", http.FileServerFS(below(a.HostLogs))).ServeHTTP(w, r)
}

// below is a directory as an fs.FS whose links can't lead out of it.
type below string

// Open implements fs.FS.
func (dir below) Open(name string) (fs.File, error) {
	root, err := os.Open(string(dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := safeopen.Open(root, name, os.O_RDONLY, 0)
	if errors.Is(err, safeopen.ErrEscapes) || errors.Is(err, safeopen.ErrSpecial) {
		return nil, fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
