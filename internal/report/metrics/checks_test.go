package metrics_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

func TestChecks(t *testing.T) {
	m := metrics.New(metrics.Info{})
	m.Checks.Checked("ping", nil)
	m.Checks.Checked("pleg", nil)
	m.Checks.Checked("pleg", errors.New("stuck"))
	w := httptest.NewRecorder()
	m.Checks.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/slis", nil))
	for _, want := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthcheck{name="pleg",type="healthz"} 0`,
		`kubernetes_healthchecks_total{name="pleg",status="error",type="healthz"} 1`, `kubernetes_healthchecks_total{name="pleg",status="success",type="healthz"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("%s isn't in\n%s", want, w.Body)
		}
	}
}
