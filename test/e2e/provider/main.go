// Command provider is a credential provider plugin for tests. It gives out the user and
// password ("user:password") that a file says now, and writes down for which images it was asked:
//
//	provider FILE LOG
//
// With the latter it writes the token of a service account that it was given, too. What it says of an image whose name ends in "/kept" may be kept for an hour; of others, not at all.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
}

func run(file, log string) error {
	var q v1.CredentialProviderRequest
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		return err
	}
	if q.Kind != "CredentialProviderRequest" || q.APIVersion != v1.SchemeGroupVersion.String() {
		return fmt.Errorf("asked with a %s of %s", q.Kind, q.APIVersion)
	}
	if err := note(log, q.Image); err != nil {
		return err
	}
	if q.ServiceAccountToken != "" {
		if err := note(log, "token "+q.ServiceAccountToken); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	keep := metav1.Duration{}
	if strings.HasSuffix(q.Image, "/kept") {
		keep.Duration = time.Hour
	}
	registry, _, _ := strings.Cut(q.Image, "/")
	return json.NewEncoder(os.Stdout).Encode(v1.CredentialProviderResponse{
		TypeMeta:      metav1.TypeMeta{APIVersion: q.APIVersion, Kind: "CredentialProviderResponse"},
		CacheKeyType:  v1.ImagePluginCacheKeyType,
		CacheDuration: &keep,
		Auth:          map[string]v1.AuthConfig{registry: {Username: user, Password: password}},
	})
}

// note adds a line to the log.
func note(log, image string) error {
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, image)
	return err
}
