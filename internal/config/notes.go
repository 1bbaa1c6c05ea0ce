package config

import (
	"github.com/deckhand-node/deckhand/internal/config/fields"
)

// addNotes adds what the agent logs about a valid configuration.
func (l *loader) addNotes() {
	c := l.config
	c.NotActedOn = fields.NotActedOn(l.given.Config(), c.Standalone && !l.somewhere, l.given.Given, c.Gates.Enabled)
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
