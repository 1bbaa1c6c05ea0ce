package preflight

import (
	"fmt"
	"time"
)

// leeway is how much the build machine's clock may be ahead.
const leeway = 24 * time.Hour

// firstRelease is earlier than any build of deckhand.
var firstRelease = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// checkClock reports a clock that shows a time before the build. Hosts without a battery start in 1970 or at the
// date of their image. The problem isn't fatal, because pods may have to run before there is a network to
// synchronize the time.
func checkClock(now, builtAt time.Time) []Problem {
	earliest := firstRelease
	if built := builtAt.Add(-leeway); built.After(earliest) {
		earliest = built
	}
	if !now.Before(earliest) {
		return nil
	}
	return []Problem{{Message: fmt.Sprintf(
		"the clock says %s, which is before this program was built: certificates won't verify, and times in statuses "+
			"and logs are wrong; "+
			"have it set by NTP (timedatectl set-ntp true, or chronyd)", now.UTC().Format(time.RFC3339))}}
}
