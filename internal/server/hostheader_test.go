package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/deckhand-node/deckhand/internal/server"
)

// TestHostHeader: a page in a browser of this machine, whose host's name was pointed here, gets nothing.
func TestHostHeader(t *testing.T) {
	own := func() []string { return []string{"Node-1.example", "192.0.2.7", "2001:db8::7"} }
	s, _, _ := start(t, server.Listener{Name: "a", Addr: loopback(), Names: own, Handler: say("secret")}, server.Listener{Name: "open", Addr: loopback(), Handler: say("for those who say who they are")})
	port := s.Addr("a").Port()
	get := func(name, request string) (int, string) {
		t.Helper()
		c, err := net.Dial("tcp", s.Addr(name).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, host := range []string{"localhost", "LOCALHOST", "localhost.", "web.localhost", "127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]", "node-1.EXAMPLE", "node-1.example.", "192.0.2.7", "[2001:DB8::7]",
		"localhost.localdomain", "ip6-localhost", "192.0.2.8", "[2001:db8::8]", "0.0.0.0"} {
		for _, with := range []string{host, fmt.Sprintf("%s:%d", host, port), host + ":80"} {
			if code, body := get("a", "GET / HTTP/1.1\r\nHost: "+with+"\r\nConnection: close\r\n\r\n"); code != 200 || body != "secret" {
				t.Errorf("Host: %s: %d %s", with, code, body)
			}
		}
	}
	if code, _ := get("a", "GET / HTTP/1.0\r\n\r\n"); code != 200 {
		t.Errorf("no Host: %d", code)
	}
	for _, host := range []string{"evil.example", "localhost.evil.example", "evil-localhost", "node-1.example.evil.example", "node-1", "127.0.0.1.evil.example", "7f000001.rebind.example:80", "%0a"} {
		if code, body := get("a", "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); code != http.StatusMisdirectedRequest && code != http.StatusBadRequest || body == "secret" {
			t.Errorf("Host: %s: %d %s", host, code, body)
		}
	}
	if code, _ := get("a", "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); code != http.StatusMisdirectedRequest {
		t.Errorf("an absolute URL: %d", code)
	}
	if code, _ := get("open", "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"); code != 200 {
		t.Errorf("a listener without names: %d", code)
	}
}
