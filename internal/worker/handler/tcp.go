package handler

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// probeTCP succeeds if it can open a connection.
func probeTCP(ctx context.Context, t Target, action *v1.TCPSocketAction, timeout time.Duration) Outcome {
	at, err := t.endpoint(action.Host, action.Port)
	if err != nil {
		return unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialTCP(ctx, at.host, at.port)
	if err != nil {
		return unanswered(err)
	}
	// The error of closing says nothing about the server: the connection is reset.
	_ = conn.Close()
	return Outcome{State: Success}
}
