package volumestate_test

import (
	"errors"
	"io/fs"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

func TestSeveralErrorsAreReportedInOneLine(t *testing.T) {
	both := errors.Join(errors.New("a is missing"), fs.ErrPermission)
	p := volumestate.Problem{Volume: &v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}, Err: both}
	if want := `volume "conf" (configMap): a is missing; permission denied`; p.String() != want {
		t.Errorf("got %q, want %q", p, want)
	}
}
