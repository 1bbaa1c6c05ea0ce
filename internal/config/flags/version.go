package flags

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// The values of Version.Print.
const (
	PrintNothing = ""
	PrintVersion = "true"
	PrintRaw     = "raw"
)

// Version is the value of --version. If it is repeated, the last Print and the last Reported count.
type Version struct {
	// Print is PrintNothing, PrintVersion or PrintRaw.
	Print string
	// Reported is the version to report instead of the build's own version, such as "v1.36.3-vendor.1". If it is empty,
	// the build's own version is reported.
	Reported string

	build string
}

// newVersion returns the value for a build that replaces this release of the kubelet.
func newVersion(build string) Version { return Version{build: build} }

// Set accepts true, false, raw, or a version with the build's own major, minor and patch numbers.
func (v *Version) Set(text string) error {
	if text == PrintRaw {
		v.Print = PrintRaw
		return nil
	}
	if strings.HasPrefix(text, "v") {
		return v.report(text)
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("it must be true, false, raw, or a version to report")
	}
	v.Print = PrintNothing
	if on {
		v.Print = PrintVersion
	}
	return nil
}

func (v *Version) report(text string) error {
	wanted, err := version.ParseSemantic(text)
	if err != nil {
		return fmt.Errorf("it isn't a version such as %s-vendor.1", v.build)
	}
	own, err := version.ParseSemantic(v.build)
	if err != nil {
		return fmt.Errorf("this build's own version %q isn't valid: %w", v.build, err)
	}
	if wanted.Major() != own.Major() || wanted.Minor() != own.Minor() || wanted.Patch() != own.Patch() {
		return fmt.Errorf("this build implements %s: the version must begin with that, only a suffix may differ",
			v.build)
	}
	v.Print, v.Reported = PrintNothing, text
	return nil
}

// String returns the value in the format of Set.
func (v *Version) String() string {
	switch {
	case v.Print != PrintNothing:
		return v.Print
	case v.Reported != "":
		return v.Reported
	default:
		return "false"
	}
}

// Type is the type's name in the help.
func (*Version) Type() string { return "version" }
