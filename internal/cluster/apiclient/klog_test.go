package apiclient

import (
	"bytes"
	"flag"
	"sync"
	"testing"

	"k8s.io/klog/v2"
)

// libraryLog has Kubernetes' libraries log all that they can, and returns what they did.
func libraryLog(t *testing.T) func() string {
	t.Helper()
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"v": "10", "logtostderr": "false"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	out := &buffer{}
	klog.SetOutput(out)
	t.Cleanup(func() {
		klog.Flush()
		_ = flags.Set("v", "0")
		_ = flags.Set("logtostderr", "true")
		klog.ClearLogger()
	})
	klog.V(10).Info("the library logs")
	return func() string { klog.Flush(); return out.String() }
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
