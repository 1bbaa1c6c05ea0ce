package validation

import (
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
)

// rotateServerCertificate is the gate that serverTLSBootstrap needs.
const rotateServerCertificate = "RotateKubeletServerCertificate"

// versionTLS13 is the oldest TLS version whose cipher suites can't be configured.
const versionTLS13 = "VersionTLS13"

// tls checks the certificate and encryption settings of the server.
func (k *check) tls() {
	cert, key := at("tlsCertFile"), at("tlsPrivateKeyFile")
	k.file(cert, k.TLSCertFile)
	k.file(key, k.TLSPrivateKeyFile)
	switch {
	case k.TLSCertFile != "" && k.TLSPrivateKeyFile == "":
		k.required(key, cert, "it is needed beside tlsCertFile: its private key")
	case k.TLSCertFile == "" && k.TLSPrivateKeyFile != "":
		k.required(cert, key, "it is needed beside tlsPrivateKeyFile: its certificate")
	}
	if k.ServerTLSBootstrap {
		k.needsGate(at("serverTLSBootstrap"), rotateServerCertificate)
	}
	if v := k.TLSMinVersion; v != "" {
		oneOf(k, at("tlsMinVersion"), v, cliflag.TLSPossibleVersions()...)
	}
	k.cipherSuites(at("tlsCipherSuites"))
	k.curves(at("tlsCurvePreferences"))
}

// cipherSuites checks the names of the cipher suites. With TLS 1.2, the list also has to contain one of two suites:
// without them, Go's HTTP/2 server doesn't start (RFC 7540, 9.2.2).
func (k *check) cipherSuites(path *field.Path) {
	known := cliflag.TLSCipherPossibleValues()
	for i, suite := range k.TLSCipherSuites {
		oneOf(k, path.Index(i), suite, known...)
	}
	needed := []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
	has := slices.ContainsFunc(k.TLSCipherSuites, func(suite string) bool { return slices.Contains(needed, suite) })
	if len(k.TLSCipherSuites) > 0 && !has && k.TLSMinVersion != versionTLS13 {
		k.required(path, path, "it must have "+strings.Join(needed,
			" or ")+", which HTTP/2 needs with TLS 1.2; or set tlsMinVersion: "+versionTLS13)
	}
}

func (k *check) curves(path *field.Path) {
	for i, id := range k.TLSCurvePreferences {
		switch _, err := cliflag.TLSCurvePreferences([]int32{id}); {
		case id < 1 || id > math.MaxUint16:
			k.invalid(path.Index(i), id, "must be from 1 to 65535")
		case err != nil:
			k.invalid(path.Index(i), id,
				"is unknown to this build: must be one of crypto/tls, such as 29 (X25519), 23 (P-256) or 4588 "+
					"(X25519MLKEM768)")
		case slices.Contains(k.TLSCurvePreferences[:i], id):
			k.duplicate(path.Index(i), id)
		}
	}
}
