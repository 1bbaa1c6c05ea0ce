package plugins

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

// images has every image, or fails.
type images struct {
	err   error
	asked []Request
}

func (i *images) Ensure(ctx context.Context, r Request) (Image, error) {
	i.asked = append(i.asked, r)
	if err := errors.Join(ctx.Err(), i.err); err != nil {
		return Image{}, err
	}
	return Image{Ref: "sha256:of-" + r.Image}, nil
}

// always is for the suite, which asks from several goroutines.
type always struct{}

func (always) Ensure(ctx context.Context, r Request) (Image, error) {
	return Image{Ref: "sha256:of-" + r.Image}, ctx.Err()
}

func imageRequest(source v1.ImageVolumeSource) volume.Request {
	return volume.Request{Pod: &v1.Pod{}, Spec: volume.Spec{Volume: &v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &source}}}}
}

func TestImageContract(t *testing.T) {
	volumetest.Run(t, volumetest.Case{
		Plugin:    NewImageVolume(always{}),
		Spec:      func(string) volume.Spec { return imageRequest(v1.ImageVolumeSource{Reference: "model:1"}).Spec },
		Elsewhere: true, IgnoresGroup: true, Stepless: true,
	})
}

func TestTheRuntimeMountsWhatWasPulled(t *testing.T) {
	r := imageRequest(v1.ImageVolumeSource{Reference: "model:1", PullPolicy: v1.PullAlways})
	i := &images{}
	m, err := NewImageVolume(i).Mount(t.Context(), r)
	want := volume.Mounted{ReadOnly: true, Unpropagated: true, Image: &runtimeapi.ImageSpec{Image: "sha256:of-model:1", UserSpecifiedImage: "model:1"}}
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, %v", m, err)
	}
	if len(i.asked) != 1 || i.asked[0] != (Request{Image: "model:1", Policy: v1.PullAlways, Pod: r.Pod}) {
		t.Errorf("asked for %+v", i.asked)
	}
}

// TestARunningPodKeepsItsImage: it isn't looked for a newer one when an agent starts again.
func TestARunningPodKeepsItsImage(t *testing.T) {
	for policy, want := range map[v1.PullPolicy]v1.PullPolicy{
		v1.PullAlways: v1.PullIfNotPresent, v1.PullIfNotPresent: v1.PullIfNotPresent, v1.PullNever: v1.PullNever,
	} {
		r := imageRequest(v1.ImageVolumeSource{Reference: "model:1", PullPolicy: policy})
		r.InUse = true
		i := &images{}
		if _, err := NewImageVolume(i).Mount(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if i.asked[0].Policy != want {
			t.Errorf("%s became %s, want %s", policy, i.asked[0].Policy, want)
		}
	}
}

// TestAPullThatFailedIsReportedAsItIs: when to try again, and what it waits for.
func TestAPullThatFailedIsReportedAsItIs(t *testing.T) {
	failure := &pod.Failure{Reason: "ImagePullBackOff", Message: "not now", NotBefore: time.Unix(1000, 0), Awaits: pod.Object{Kind: "Secret", Namespace: "default"}}
	_, err := NewImageVolume(&images{err: failure}).Mount(t.Context(), imageRequest(v1.ImageVolumeSource{Reference: "model:1"}))
	var got *pod.Failure
	if !errors.As(err, &got) || !reflect.DeepEqual(got, failure) {
		t.Errorf("got %v", err)
	}
}

func TestAnImageWithoutAReference(t *testing.T) {
	if _, err := NewImageVolume(&images{}).Mount(t.Context(), imageRequest(v1.ImageVolumeSource{})); !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
