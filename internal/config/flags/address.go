package flags

import (
	"fmt"
	"net/netip"
)

// addressValue is an IP address, kept as the text that was given. As with the kubelet, an
// empty text says nothing: what another flag or the file says stays.
type addressValue struct {
	target *string
	said   bool
}

// newAddressValue returns a value that is kept in target.
func newAddressValue(target *string) *addressValue { return &addressValue{target: target} }

// Set takes an IP address, or nothing.
func (a *addressValue) Set(text string) error {
	if text == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", text)
	}
	*a.target, a.said = text, true
	return nil
}

// Said reports whether an address was given.
func (a *addressValue) Said() bool { return a.said }

// String returns the address.
func (a *addressValue) String() string { return *a.target }

// Type is the name of such values in help.
func (*addressValue) Type() string { return "ip" }
