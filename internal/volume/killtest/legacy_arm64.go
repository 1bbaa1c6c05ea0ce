package killtest

import "golang.org/x/sys/unix"

// legacyCalls are those that have newer ones in their place.
var legacyCalls = map[uint64]call{unix.SYS_RENAMEAT: {"renameat", nil}}

var legacyFiles = all(unix.SYS_FSTATAT)
