package config

import (
	"github.com/deckhand-node/deckhand/internal/config/fields"
)

// notes collects what is to be told of a good configuration.
func (l *loader) notes() {
	c := l.config
	c.NotActedOn = fields.NotActedOn(l.given.Config(), l.given.Given, c.Gates.Enabled)
	for _, g := range c.Gates.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, fields.Told{Path: "featureGates[" + g.Gate + "]", Why: g.Message})
	}
	for _, f := range l.set.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, fields.Told{Path: "--" + f.Flag, Why: f.Why})
	}
	for _, f := range l.set.Deprecated() {
		c.Deprecated = append(c.Deprecated, "--"+f.Flag+": "+f.Why)
	}
	for _, g := range c.Gates.Retiring() {
		c.Deprecated = append(c.Deprecated, "featureGates["+g.Gate+"]: "+g.Message)
	}
}
