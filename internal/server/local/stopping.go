package local

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// StopPods stops pods and keeps them stopped, or restarts them if restart is set. It returns when the pods are gone or
// restarted. If ctx ends before that, it returns and the operation continues.
func (c *Client) StopPods(ctx context.Context, restart bool, names ...types.NamespacedName) error {
	query := namesQuery(names)
	query.Set("restart", strconv.FormatBool(restart))
	_, err := ask[struct{}](ctx, c, http.MethodPost, "/v1/pods/stop", query, nil)
	return err
}

// StartPods starts stopped pods.
func (c *Client) StartPods(ctx context.Context, names ...types.NamespacedName) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "/v1/pods/start", namesQuery(names), nil)
	return err
}

// StopAll stops all pods, and then the agent. It returns at once.
func (c *Client) StopAll(ctx context.Context) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "/v1/down", nil, nil)
	return err
}

func namesQuery(names []types.NamespacedName) url.Values {
	query := url.Values{}
	for _, n := range names {
		query.Add("pod", n.String())
	}
	return query
}

func queryNames(r *http.Request) ([]types.NamespacedName, error) {
	var names []types.NamespacedName
	for _, text := range r.URL.Query()["pod"] {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			return nil, &StatusError{http.StatusBadRequest, fmt.Errorf("pod %q isn't NAMESPACE/NAME", text)}
		}
		names = append(names, types.NamespacedName{Namespace: namespace, Name: name})
	}
	if len(names) == 0 {
		return nil, &StatusError{http.StatusBadRequest, fmt.Errorf("no pod is named")}
	}
	return names, nil
}

func (s *Server) stopPods(w http.ResponseWriter, r *http.Request) error {
	names, err := queryNames(r)
	if err != nil {
		return err
	}
	restart, err := strconv.ParseBool(r.URL.Query().Get("restart"))
	if err != nil {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("restart must be true or false")}
	}
	if err := s.agent.StopPods(r.Context(), restart, names...); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

func (s *Server) startPods(w http.ResponseWriter, r *http.Request) error {
	names, err := queryNames(r)
	if err != nil {
		return err
	}
	if err := s.agent.StartPods(names...); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

func (s *Server) down(w http.ResponseWriter, _ *http.Request) error {
	s.agent.StopAll()
	return answer(w, struct{}{})
}
