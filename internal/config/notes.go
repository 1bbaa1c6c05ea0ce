package config

import (
	"github.com/deckhand-node/deckhand/internal/config/fields"
)

// addNotes adds the notes that the agent logs about a valid configuration.
func (l *loader) addNotes() {
	c := l.config
	c.NotActedOn = fields.NotActedOn(l.given.Config(), c.Standalone && !l.somewhere, l.given.Given, c.Gates.Enabled)
	if k := &c.Kubelet; c.Standalone && !l.somewhere && *k.EnableServer && !judges(k) && l.given.Given("port") {
		c.NotActedOn = append(c.NotActedOn,
			fields.Notice{Path: "port",
				Why: "the HTTPS server stays closed: without an API server, authorization.mode has to be " +
					"AlwaysAllow, and authentication.x509.clientCAFile or authentication.anonymous has to be set"})
	}
	for _, g := range c.Gates.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, fields.Notice{Path: "featureGates[" + g.Gate + "]", Why: g.Message})
	}
	for _, f := range l.set.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, fields.Notice{Path: "--" + f.Flag, Why: f.Why})
	}
	for _, f := range l.set.Deprecated() {
		c.Deprecated = append(c.Deprecated, "--"+f.Flag+": "+f.Why)
	}
	for _, g := range c.Gates.Retiring() {
		c.Deprecated = append(c.Deprecated, "featureGates["+g.Gate+"]: "+g.Message)
	}
}
