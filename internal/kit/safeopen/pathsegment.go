package safeopen

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Check refuses a name that isn't exactly one element of a path: an empty one, ".", "..", and any with "/" or "%" in
// it. The parameter what names the kind of the object in the error.
func Check(what, name string) error {
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return fmt.Errorf("%s %q can't be part of a path", what, name)
	}
	return nil
}
