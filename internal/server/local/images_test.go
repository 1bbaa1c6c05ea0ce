package local

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/gc"
)

func TestErrorsAboutImagesHaveTheirStatus(t *testing.T) {
	for cause, want := range map[error]int{
		gc.ErrUnknown: http.StatusNotFound, gc.ErrRetained: http.StatusConflict, gc.ErrUsesUnknown: http.StatusServiceUnavailable,
		image.ErrStarting: http.StatusServiceUnavailable, image.ErrUnsupported: http.StatusNotImplemented, image.ErrArchive: http.StatusUnprocessableEntity,
		image.ErrName: http.StatusBadRequest,
	} {
		err := imagesError(fmt.Errorf("image a:1: %w", cause))
		if status, ok := errors.AsType[*StatusError](err); !ok || status.Code != want || status.Error() != "image a:1: "+cause.Error() {
			t.Errorf("%v: %v", cause, err)
		}
	}
	other := errors.New("the runtime doesn't answer")
	if err := imagesError(other); err != other {
		t.Errorf("got %v", err)
	}
}
