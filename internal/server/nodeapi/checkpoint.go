package nodeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkpoint lets the runtime write a container's state, with its memory, to an archive that only root can read
// (KEP-2008, https://kubernetes.io/docs/reference/node/kubelet-checkpoint-api/).
func (a *api) checkpoint(w http.ResponseWriter, r *http.Request) {
	var seconds int64
	if text := r.URL.Query().Get("timeout"); text != "" {
		var err error
		if seconds, err = strconv.ParseInt(text, 10, 32); err != nil || seconds < 0 {
			http.Error(w, fmt.Sprintf("timeout %q: it has to be a number of seconds, 0 for the runtime's own", text),
				http.StatusBadRequest)
			return
		}
	}
	p, status := a.find(w, r)
	if status == nil {
		return
	}
	id, ok := a.running(w, p, status.Name)
	if !ok {
		return
	}
	a.audit(r, "checkpoint", p, status.Name)
	path := filepath.Join(a.Checkpoints,
		fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", p.Name, p.Namespace, status.Name, time.Now().Format(time.RFC3339)))
	if err := a.Runtime.CheckpointContainer(r.Context(),
		&runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: path, Timeout: seconds}); err != nil {
		http.Error(w, fmt.Sprintf("checkpointing of %s/%s/%s failed (%v)", p.Namespace, p.Name, status.Name, err),
			http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]string{"items": {path}}) // an error means that the client is gone
}
