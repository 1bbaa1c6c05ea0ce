package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Counts is what /pods says, in numbers of pods.
type Counts struct {
	Pods, Running, Ready int
}

// Get asks the read-only API for a path.
func (a *Agent) Get(ctx context.Context, path string) ([]byte, error) {
	return a.get(ctx, fmt.Sprintf("http://127.0.0.1:%d%s", a.readOnly, path))
}

// Counts asks the read-only API once.
func (a *Agent) Counts(ctx context.Context) (Counts, error) {
	text, err := a.Get(ctx, "/pods")
	if err != nil {
		return Counts{}, fmt.Errorf("ask the agent for its pods: %w", err)
	}
	return count(text)
}

// List gets the list of pods over HTTPS.
func (a *Agent) List(ctx context.Context) error {
	_, err := a.get(ctx, "https://"+a.Address+"/pods")
	return err
}

func count(text []byte) (Counts, error) {
	var list struct {
		Items []struct {
			Status struct {
				Phase      v1.PodPhase
				Conditions []v1.PodCondition
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return Counts{}, fmt.Errorf("the agent's /pods is not a PodList: %w", err)
	}
	c := Counts{Pods: len(list.Items)}
	for _, p := range list.Items {
		if p.Status.Phase == v1.PodRunning {
			c.Running++
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == v1.PodReady && condition.Status == v1.ConditionTrue {
				c.Ready++
			}
		}
	}
	return c, nil
}

// Await asks /pods every so often until it says what is wanted, and returns when
// it did.
func (a *Agent) Await(ctx context.Context, every time.Duration, wanted func(Counts) bool) (time.Time, error) {
	for {
		c, err := a.Counts(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if wanted(c) {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%w; the agent reports %d pods, %d running, %d ready", ctx.Err(), c.Pods, c.Running, c.Ready)
		case <-time.After(every):
		}
	}
}

func (a *Agent) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, text)
	}
	return text, nil
}

// Transferred is how many bytes the agent has sent to the API server and received from it, bodies alone.
func (a *Agent) Transferred(ctx context.Context) (sent, received int64, err error) {
	sums, err := a.sums(ctx, "rest_client_request_size_bytes_sum", "rest_client_response_size_bytes_sum")
	if err != nil {
		return 0, 0, err
	}
	return int64(sums[0]), int64(sums[1]), nil
}

// Allocated is how many bytes of memory the agent has allocated since its start, given back or not.
func (a *Agent) Allocated(ctx context.Context) (int64, error) {
	sums, err := a.sums(ctx, "go_memstats_alloc_bytes_total")
	if err != nil {
		return 0, err
	}
	return int64(sums[0]), nil
}

// sums adds up the series of each of the agent's metrics.
func (a *Agent) sums(ctx context.Context, names ...string) ([]float64, error) {
	text, err := a.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	sums := make([]float64, len(names))
	for line := range strings.Lines(string(text)) {
		for i, name := range names {
			if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[0], name) {
				n, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return nil, fmt.Errorf("metric %s: %w", name, err)
				}
				sums[i] += n
			}
		}
	}
	return sums, nil
}
