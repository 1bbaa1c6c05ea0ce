package server

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAddressConnectedTo is this machine's, whatever is known of it: a cloud's node may have one that nobody has listed.
func TestAddressConnectedTo(t *testing.T) {
	for host, own := range map[string]bool{"192.0.2.9:10255": true, "[::ffff:192.0.2.9]": true, "192.0.2.8": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 10255}))
		if isOwn(r, func() []string { return nil }) != own {
			t.Errorf("%s: want %v", host, own)
		}
	}
}
