package machine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// between is the pause between two looks at something that can't be awaited.
const between = 100 * time.Millisecond

// Await tries until there is no error, or a program ended that it takes, which is final. When
// time is up, the last error tells why.
func Await(ctx context.Context, limit time.Duration, ended <-chan error, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // one that doesn't just say that time is up
		}
		select {
		case end := <-ended:
			return fmt.Errorf("the program ended by itself: %v", end)
		case <-ctx.Done():
			return fmt.Errorf("waited for %v: %w", limit, last)
		case <-time.After(between):
		}
	}
}

// Get asks a web server. No other status than 200 is an answer.
func Get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return text, nil
}
