package local

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// Volume is a volume of a pod, or a staged volume, that a driver may hold.
type Volume struct {
	// ID identifies the volume: the pod's UID and the name of the volume's directory, as UID/NAME; for a staged volume
	// the driver's name and the volume's handle, as DRIVER^HANDLE.
	ID string `json:"id"`
	// Pod is the name of the volume's pod, NAMESPACE/NAME; empty for a staged volume, and for a pod without a status.
	Pod string `json:"pod,omitempty"`
	// Driver and Handle are empty if the volume's record can't be read.
	Driver string      `json:"driver,omitempty"`
	Handle string      `json:"handle,omitempty"`
	State  VolumeState `json:"state"`
	// Waits says what the volume's mount or release waits for.
	Waits string `json:"waits,omitempty"`
}

// VolumeState is the state of a Volume.
type VolumeState string

// The states of volumes. VolumeReleasing: no pod wants the volume any more.
const (
	VolumeMounting  VolumeState = "Mounting"
	VolumeMounted   VolumeState = "Mounted"
	VolumeStaged    VolumeState = "Staged"
	VolumeReleasing VolumeState = "Releasing"
)

// Forgotten is the result of ForgetVolume.
type Forgotten struct {
	// Staged is the ID of the staged volume that was forgotten as well; empty if there was none, or if other volumes
	// use it.
	Staged string `json:"staged,omitempty"`
}

// Volumes lists the volumes that drivers may hold.
func (c *Client) Volumes(ctx context.Context) ([]Volume, error) {
	return get[[]Volume](ctx, c, "/v1/volumes", nil)
}

// ForgetVolume removes a volume without its driver.
func (c *Client) ForgetVolume(ctx context.Context, id string) (Forgotten, error) {
	return ask[Forgotten](ctx, c, http.MethodPost, "/v1/volumes/forget", url.Values{"volume": {id}}, nil)
}

func (s *Server) volumes(w http.ResponseWriter, _ *http.Request) error {
	list, err := s.agent.Volumes()
	if err != nil {
		return err
	}
	return answer(w, list)
}

func (s *Server) forgetVolume(w http.ResponseWriter, r *http.Request) error {
	id := r.URL.Query().Get("volume")
	if id == "" {
		return &StatusError{http.StatusBadRequest, errors.New("no volume is named")}
	}
	forgotten, err := s.agent.ForgetVolume(r.Context(), id)
	if err != nil {
		return err
	}
	s.log.Info("A user made the agent forget a volume", "user", UserOf(r.Context()), "volumeName", id)
	return answer(w, forgotten)
}
