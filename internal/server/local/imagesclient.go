package local

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/deckhand-node/deckhand/internal/image"
)

// Images lists the runtime's images.
func (c *Client) Images(ctx context.Context) ([]image.Image, error) {
	return get[[]image.Image](ctx, c, "/v1/images", nil)
}

// PullImage pulls an image and yields its progress for as long as the loop over the result goes on: when it is left,
// or ctx ends, the pull is cancelled. The last update has the image. An error that was yielded is the last.
func (c *Client) PullImage(ctx context.Context, name string) iter.Seq2[PullUpdate, error] {
	updates := stream[PullUpdate](func() (*http.Response, error) {
		return c.do(ctx, http.MethodPost, "/v1/images/pull", url.Values{"name": {name}}, nil)
	})
	return func(yield func(PullUpdate, error) bool) {
		for u, err := range updates {
			if err == nil && u.Error != "" {
				err = errors.New(u.Error)
			}
			if !yield(u, err) || err != nil || u.Image != nil {
				return
			}
		}
	}
}

// ImportImages imports the images of an archive, and returns their names.
func (c *Client) ImportImages(ctx context.Context, archive io.Reader) ([]string, error) {
	return ask[[]string](ctx, c, http.MethodPost, "/v1/images/import", nil, archive)
}

// SaveImages returns an archive of images, each given by name, digest or ID. The caller closes it. Its Read returns
// an error other than io.EOF if the agent couldn't send all of the archive.
func (c *Client) SaveImages(ctx context.Context, images []string) (io.ReadCloser, error) {
	response, err := c.do(ctx, http.MethodGet, "/v1/images/save", url.Values{"name": images}, nil)
	if err != nil {
		return nil, err
	}
	return &trailedBody{response}, nil
}

// TagImage adds the name target to the image source.
func (c *Client) TagImage(ctx context.Context, source, target string) (image.TaggedImage, error) {
	query := url.Values{"source": {source}, "target": {target}}
	return ask[image.TaggedImage](ctx, c, http.MethodPost, "/v1/images/tag", query, nil)
}

// RemoveImage removes an image by name, digest or ID.
func (c *Client) RemoveImage(ctx context.Context, name string) (image.RemovedImage, error) {
	return ask[image.RemovedImage](ctx, c, http.MethodPost, "/v1/images/remove", url.Values{"name": {name}}, nil)
}

// PruneImages removes unused images, or only lists them if dryRun is set.
func (c *Client) PruneImages(ctx context.Context, dryRun bool) ([]image.RemovedImage, error) {
	return ask[[]image.RemovedImage](ctx, c, http.MethodPost,
		"/v1/images/prune", url.Values{"dryRun": {strconv.FormatBool(dryRun)}}, nil)
}
