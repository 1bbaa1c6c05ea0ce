package main

import (
	"encoding/json"
	"os"
)

// given is what a process was started with: see test/e2e/env_test.go.
type given struct {
	Args, Env []string
	// Hostname is the kernel's, Hosts the pod's hosts file.
	Hostname, Hosts string
}

// tell prints, as JSON in one line, what the process was started with.
func tell(args []string) error {
	g := given{Args: args, Env: os.Environ()}
	var err error
	if g.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return err
	}
	g.Hosts = string(hosts)
	return json.NewEncoder(os.Stdout).Encode(g)
}
