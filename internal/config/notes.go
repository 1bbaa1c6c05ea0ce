package config

import (
	"github.com/deckhand-node/deckhand/internal/config/fields"
)

// notes collects what is to be told of a good configuration.
func (l *loader) notes() {
	c := l.config
	told := fields.NotActedOn(l.given.Config(), l.given.Given, c.Gates.Enabled)
	for _, reason := range fields.Reasons(told) {
		c.NotActedOn = append(c.NotActedOn, reason.String())
	}
	for _, g := range c.Gates.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, "featureGates["+g.Gate+"]: "+g.Message)
	}
	for _, f := range l.set.NotActedOn() {
		c.NotActedOn = append(c.NotActedOn, "--"+f.Flag+": "+f.Why)
	}
	for _, f := range l.set.Deprecated() {
		c.Deprecated = append(c.Deprecated, "--"+f.Flag+": "+f.Why)
	}
	for _, g := range c.Gates.Retiring() {
		c.Deprecated = append(c.Deprecated, "featureGates["+g.Gate+"]: "+g.Message)
	}
}
