package logging_test

import (
	"io"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// What a line costs that isn't logged; "ratio" compares it with textlogger alone.
func BenchmarkDisabled(b *testing.B) {
	alone := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	var perLine float64
	for _, bench := range []struct {
		name string
		log  logr.Logger
	}{
		{"textlogger alone", alone},
		{"text", open(b, logging.Config{Format: "text", Err: io.Discard}).Logger()},
		{"json", open(b, logging.Config{Format: "json", Err: io.Discard}).Logger()},
		{"text with vmodule", open(b, logging.Config{Format: "text", VModule: "other=4", Err: io.Discard}).Logger()},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.log.V(4).Info("Nobody reads this", "key", "value")
			}
			took := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if bench.name == "textlogger alone" {
				perLine = took
			}
			if perLine > 0 {
				b.ReportMetric(took/perLine, "ratio")
			}
		})
	}
}
