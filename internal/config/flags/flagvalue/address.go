package flagvalue

import (
	"fmt"
	"net/netip"
)

// Address is an IP address, kept as the text that was given. As with the kubelet, an
// empty text says nothing: what another flag or the file says stays.
type Address struct {
	target *string
	said   bool
}

// NewAddress returns a value that is kept in target.
func NewAddress(target *string) *Address { return &Address{target: target} }

// Set takes an IP address, or nothing.
func (a *Address) Set(text string) error {
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
func (a *Address) Said() bool { return a.said }

// String returns the address.
func (a *Address) String() string { return *a.target }

// Type is the name of such values in help.
func (*Address) Type() string { return "ip" }
