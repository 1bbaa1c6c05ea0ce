package rootdir

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Invoker is the user that started the agent with sudo; -1 if there is none. That user can become root anyway, so
// the user's files are trusted like root's.
type Invoker struct{ UID, GID int }

// InvokerOf returns the invoker according to the environment variables that sudo(8) sets.
func InvokerOf(getenv func(string) string) Invoker {
	id := func(name string) int {
		if n, err := strconv.ParseUint(getenv(name), 10, 31); err == nil {
			return int(n)
		}
		return -1
	}
	return Invoker{id("SUDO_UID"), id("SUDO_GID")}
}

// Writers reports who can write to a file that the agent trusts (a manifest, a program), apart from root, the
// agent's own user and the invoker. anybody means all users of the machine. others describes one user or group or
// both; it is empty if there are none.
func Writers(info fs.FileInfo, by Invoker) (anybody bool, others string) {
	mode := info.Mode().Perm()
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return mode&0o002 != 0, ""
	}
	var writers []string
	if uid := int(st.Uid); uid != 0 && uid != os.Geteuid() && uid != by.UID {
		writers = append(writers, named("user", uid, userName(uid)))
	}
	if gid := int(st.Gid); mode&0o020 != 0 && gid != 0 && gid != os.Getegid() && gid != by.GID {
		writers = append(writers, named("group", gid, groupName(gid)))
	}
	return mode&0o002 != 0, strings.Join(writers, " and ")
}

func named(kind string, id int, name string) string {
	if name == "" {
		return fmt.Sprintf("the %s %d", kind, id)
	}
	return fmt.Sprintf("the %s %s (%d)", kind, name, id)
}

func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

func groupName(gid int) string {
	g, err := user.LookupGroupId(strconv.Itoa(gid))
	if err != nil {
		return ""
	}
	return g.Name
}
