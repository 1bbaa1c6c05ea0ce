package flags

import (
	"fmt"
	"net/netip"
)

// addressValue is the value of a flag for an IP address, which is stored as the user wrote it. As in the kubelet, an
// empty string doesn't count as given: the value of the file or of an earlier flag stays.
type addressValue struct {
	target *string
	given  bool
}

// newAddressValue returns a value that is stored in target.
func newAddressValue(target *string) *addressValue { return &addressValue{target: target} }

// Set accepts an IP address, or an empty string.
func (a *addressValue) Set(text string) error {
	if text == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", text)
	}
	*a.target, a.given = text, true
	return nil
}

// Given reports whether an address was given.
func (a *addressValue) Given() bool { return a.given }

// String returns the address.
func (a *addressValue) String() string { return *a.target }

// Type is the type's name in the help.
func (*addressValue) Type() string { return "ip" }
