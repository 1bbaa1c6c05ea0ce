package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// maxContainer is the maximum size of a container's JSON in bytes.
const maxContainer = 1 << 20

// AddContainer adds an ephemeral container to a pod. Unless uid is empty, the pod must have that UID. AddContainer
// doesn't wait until the container is started.
func (c *Client) AddContainer(ctx context.Context, pod types.NamespacedName, uid types.UID,
	container v1.EphemeralContainer) error {
	text, err := json.Marshal(container)
	if err != nil {
		return err
	}
	query := namesQuery([]types.NamespacedName{pod})
	query.Set("uid", string(uid))
	_, err = ask[struct{}](ctx, c, http.MethodPost, "/v1/pods/debug", query, bytes.NewReader(text))
	return err
}

func (s *Server) addContainer(w http.ResponseWriter, r *http.Request) error {
	names, err := queryNames(r)
	if err != nil {
		return err
	}
	if len(names) > 1 {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("a container is added to one pod at a time")}
	}
	var c v1.EphemeralContainer
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxContainer))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("read the container: %w", err)}
	}
	if err := s.agent.AddContainer(names[0], types.UID(r.URL.Query().Get("uid")), c); err != nil {
		return err
	}
	s.log.Info("A user adds a container to a pod", "user", UserOf(r.Context()),
		"pod", klog.KRef(names[0].Namespace, names[0].Name), "containerName", c.Name, "image", c.Image)
	return answer(w, struct{}{})
}
