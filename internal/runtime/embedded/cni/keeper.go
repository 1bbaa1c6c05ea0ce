package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Keeper restores parts of the network that other programs remove while pods run: a firewall's restart flushes
// netfilter rules, an administrator deletes the bridge or disables forwarding. It changes only the network's own
// parts. The kernel notifies it of changes, so there is no polling.
type Keeper struct {
	config KeeperConfig
	look   wake.Debounce

	// mu guards fields that the watch, callers and Run share.
	mu      sync.Mutex
	dirty   parts
	by      string
	problem Problem
}

// KeeperConfig configures a Keeper. Every field is required.
type KeeperConfig struct {
	Network Network
	Backend Backend
	// Portmap returns the path of the portmap plugin.
	Portmap func() (string, error)
	// Restored is called with a sentence after a part was restored.
	Restored func(message string)
	Log      logr.Logger
}

// Problem is why the network isn't in its intended state. The zero value means no problem.
type Problem struct {
	Message string
	Since   time.Time
}

// parts are the parts of the network that may have changed: links (the bridge, addresses, routes, forwarding) and
// netfilter rules.
type parts struct{ links, rules bool }

const (
	// lookGap is the shortest time between two checks: each reads the records of all pods, and starting pods
	// trigger it.
	lookGap = time.Second
	// settle is how long a pod's host ports have to be missing before they are restored: while a pod is torn down,
	// they are missing for a moment.
	settle = time.Second
	// writing is the age up to which an unreadable CNI result may be a file that is still being written.
	writing = 5 * time.Second
	// repairPause is the minimum time between two repairs, in case another program undoes each of them. A problem
	// is reported after foughtAfter repairs that weren't separated by a time of calm.
	repairPause = time.Second
	calm        = 10 * time.Second
	foughtAfter = 20
	// longestPause is the longest delay after a failed attempt. The first delay is lookGap, and each is twice as
	// long as the previous one.
	longestPause = 30 * time.Second
	// legacyPoll is the interval of checks of iptables-legacy rules: the kernel doesn't report their changes.
	legacyPoll = 30 * time.Second
)

// NewKeeper returns a Keeper that does nothing before Run.
func NewKeeper(config KeeperConfig) *Keeper {
	return &Keeper{config: config, look: wake.NewDebounce(lookGap)}
}

// Problem returns the current problem.
func (k *Keeper) Problem() Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// Run maintains the network until ctx ends. It starts with restoring parts that were removed while no agent ran.
func (k *Keeper) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch.Go(func() { k.watch(ctx) })
	state := keeping{Keeper: k, legacy: k.config.Backend == IPTables && !notifiesChanges(ctx),
		restored: map[string]bool{},
		suspects: map[string]time.Time{}}
	var began, next time.Time
	for k.look.Await(ctx, began, next) {
		began = time.Now()
		next = state.round(ctx, began)
	}
	return nil
}

// notifiesChanges reports whether the kernel notifies of changes of iptables' rules. It does if iptables uses nftables.
func notifiesChanges(ctx context.Context) bool {
	version, err := output(ctx, "iptables", "-V")
	return err == nil && strings.Contains(string(version), "nf_tables")
}

// watch wakes Run after changes. It restarts a watch that ends.
func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.config.Network.watch(ctx, k)
		if ctx.Err() != nil {
			return
		}
		k.config.Log.Error(err, "Can't watch the pod network; removals by other programs are repaired with a delay")
		k.wake(parts{links: true, rules: true})
		select {
		case <-ctx.Done():
		case <-time.After(longestPause):
		}
	}
}

func (k *Keeper) wake(p parts) {
	k.mu.Lock()
	k.dirty.links = k.dirty.links || p.links
	k.dirty.rules = k.dirty.rules || p.rules
	k.mu.Unlock()
	k.look.Wake()
}

func (k *Keeper) watching()     { k.wake(parts{links: true, rules: true}) }
func (k *Keeper) linksChanged() { k.wake(parts{links: true}) }
func (k *Keeper) rulesChanged() { k.wake(parts{rules: true}) }

func (k *Keeper) changedBy(program string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by = program
}

// drain returns the parts to check, and the program that last changed rules.
func (k *Keeper) drain() (parts, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, by := k.dirty, k.by
	k.dirty, k.by = parts{}, ""
	return p, by
}

// setProblem sets the current problem, or clears it if the message is empty. It reports whether the message has
// changed.
func (k *Keeper) setProblem(message string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.problem.Message == message {
		return false
	}
	if message == "" {
		k.problem = Problem{}
		return true
	}
	if k.problem.Message == "" {
		k.problem.Since = now
	}
	k.problem.Message = message
	return true
}

// keeping is the state of Run between checks.
type keeping struct {
	*Keeper
	legacy bool
	// mac is the bridge's hardware address, which pods cache for the host.
	mac net.HardwareAddr
	// baseline is the listing of the rules in their intended state; empty before the first check.
	baseline string
	// suspects maps sandboxes with missing host ports to the time when that was first noticed. restored has the
	// sandboxes whose host ports the keeper has restored, possibly after the plugin had removed the ports in a
	// teardown: see unmapGone.
	suspects map[string]time.Time
	restored map[string]bool
	// broken has the sandboxes whose CNI results were logged as unreadable.
	broken map[string]bool
	// repairs is the number of repairs since the last time of calm; repaired is the time of the latest repair.
	repairs  int
	repaired time.Time
	// failures counts consecutive failed attempts. After a failure, host ports aren't changed before retry: each
	// attempt to map a pod's ports changes netfilter, which wakes the keeper.
	failures int
	retry    time.Time
	// pending are the parts that still have to be checked, because the last attempt failed or was postponed.
	pending parts
}

// round checks the parts that may have changed, restores missing ones, and returns the time of the next check if
// nothing wakes the keeper earlier.
func (s *keeping) round(ctx context.Context, now time.Time) (next time.Time) {
	p, by := s.drain()
	s.pending.links, s.pending.rules = s.pending.links || p.links, s.pending.rules || p.rules
	if s.legacy {
		s.pending.rules = true
		next = now.Add(legacyPoll)
	}
	if !s.repaired.IsZero() && now.Sub(s.repaired) >= calm {
		s.repairs, s.repaired = 0, time.Time{}
		if s.failures == 0 {
			s.setProblem("", now)
		}
	}
	if due := s.repaired.Add(repairPause); s.repairs > 1 && now.Before(due) {
		return due
	}
	if s.pending == (parts{}) {
		return s.soonest(next)
	}
	waiting := s.failures > 0 && now.Before(s.retry)
	made, again, err := s.repair(ctx, !waiting)
	if ctx.Err() != nil {
		return time.Time{}
	}
	if len(made) > 0 {
		s.repairs, s.repaired = s.repairs+1, now
		message := fmt.Sprintf("Another program removed parts of the pod network; they are made again: %s",
			strings.Join(made, "; "))
		if by != "" {
			message += fmt.Sprintf(" (netfilter was changed by %s)", by)
		}
		if s.repairs <= foughtAfter {
			s.config.Log.Info("Another program removed parts of the pod network; made them again",
				"bridge", s.config.Network.Bridge, "changed", made, "source", by)
			s.config.Restored(message)
		}
	}
	if err != nil {
		if s.setProblem("parts of the pod network can't be made again, and this is tried again all the time: "+err.Error(), now) {
			s.config.Log.Error(err, "Can't make the pod network again", "bridge", s.config.Network.Bridge)
		}
		if !waiting {
			s.failures++
			s.retry = now.Add(min(lookGap<<min(s.failures, 20), longestPause))
		}
		return s.retry
	}
	if waiting {
		return s.retry
	}
	s.failures = 0
	switch {
	case s.repairs < foughtAfter:
		s.setProblem("", now)
	case len(made) > 0:
		s.setProblem(fmt.Sprintf(
			"another program removes parts of the pod network again and again (%s), and they are made again each "+
				"time; have that program leave the bridge %s, its rules and IP forwarding alone",
			strings.Join(made, "; "), s.config.Network.Bridge), now)
	}
	s.pending = parts{}
	if !again.IsZero() {
		s.pending.rules = true
		return again
	}
	return s.soonest(next)
}

// soonest returns the time of the next check without a wake-up: the earlier of next (zero means none) and the end
// of the time of calm after the last repair.
func (s *keeping) soonest(next time.Time) time.Time {
	if s.repaired.IsZero() {
		return next
	}
	if end := s.repaired.Add(calm); next.IsZero() || end.Before(next) {
		return end
	}
	return next
}

// repair restores missing elements of the pending parts; made describes the restored elements. again is the time of
// another check, needed if rules may be missing only temporarily. If mayMap is false, repair doesn't change host ports.
func (s *keeping) repair(ctx context.Context, mayMap bool) (made []string, again time.Time, err error) {
	n := s.config.Network
	var errs []error
	if s.pending.rules { // first, because the guard has to exist before the bridge
		changed, err := s.repairRules(ctx)
		if changed {
			made = append(made, "masquerading and the guard of the host's loopback addresses")
		}
		if err != nil {
			return made, again, err
		}
	}
	attached, unread, err := n.attachments()
	errs = append(errs, err)
	soon := s.leaveOut(unread)
	attached, bridge, err := s.plugged(attached)
	if err != nil {
		return made, again, errors.Join(append(errs, err)...)
	}
	if s.pending.links {
		repairs, err := s.repairLinks(bridge, attached)
		made = append(made, repairs...)
		if err != nil {
			return made, again, errors.Join(append(errs, err)...)
		}
	}
	if !mayMap {
		return made, again, errors.Join(errs...)
	}
	errs = append(errs, s.unmapGone(ctx, attached))
	if s.pending.rules {
		var ports []string
		ports, again, err = s.repairPorts(ctx, attached, len(made) > 0)
		made, errs = append(made, ports...), append(errs, err)
	}
	if again.IsZero() || !soon.IsZero() && soon.Before(again) {
		again = soon
	}
	return made, again, errors.Join(errs...)
}

// leaveOut logs each unreadable CNI result once. The CNI library may still be writing a recent one: again is the time
// to read the results again, zero for none.
func (s *keeping) leaveOut(unread []*broken) (again time.Time) {
	now := time.Now()
	logged := map[string]bool{}
	for _, b := range unread {
		if age := now.Sub(b.written); age >= 0 && age < writing {
			again = now.Add(settle)
			continue
		}
		if !s.broken[b.sandbox] {
			s.config.Log.Info("Ignoring an unreadable CNI result; the sandbox's connection and host ports aren't "+
				"made again if they are removed",
				"path", s.config.Network.result(b.sandbox), "reason", b.Error())
		}
		logged[b.sandbox] = true
	}
	s.broken = logged
	return again
}

// repairRules restores the network's own rules if they have changed.
func (s *keeping) repairRules(ctx context.Context) (changed bool, err error) {
	n, backend := s.config.Network, s.config.Backend
	now, err := n.rules(ctx, backend)
	if err != nil {
		return false, fmt.Errorf("list the pod network's rules: %w", err)
	}
	if now != "" && now == s.baseline {
		return false, nil
	}
	// The first check always creates the rules, but reports a change only if they were missing.
	changed = s.baseline != "" || now == ""
	if err := n.EnsureRules(ctx, backend); err != nil {
		return false, err
	}
	s.baseline, err = n.rules(ctx, backend)
	return changed, err
}

// plugged returns the attachments whose interface exists, and the bridge if it exists. The pods of other
// attachments are being torn down.
func (s *keeping) plugged(all []attachment) ([]attachment, netlink.Link, error) {
	bridge, err := s.config.Network.bridge()
	if err != nil {
		return nil, nil, err
	}
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list the host's interfaces: %w", err)
	}
	return slices.DeleteFunc(all, func(a attachment) bool {
		i := slices.IndexFunc(links, func(l netlink.Link) bool {
			return l.Attrs().Name == a.port && l.Type() == "veth"
		})
		return i < 0
	}), bridge, nil
}

// repairLinks restores forwarding, the bridge and the pods' connections to it.
func (s *keeping) repairLinks(before netlink.Link, attached []attachment) (made []string, err error) {
	n := s.config.Network
	if before != nil {
		s.mac = before.Attrs().HardwareAddr
	}
	changed, err := n.EnsureBridge(s.mac)
	switch {
	case changed && before == nil:
		made = append(made, "the bridge "+n.Bridge)
	case changed:
		made = append(made, "the state, the address or the route of the bridge "+n.Bridge)
	}
	if err != nil {
		return made, err
	}
	for _, enable := range []func() ([]string, error){n.EnableForwarding, n.EnableBridgeForwarding} {
		settings, err := enable()
		if len(settings) > 0 {
			made = append(made, "IP forwarding ("+strings.Join(settings, ", ")+")")
		}
		if err != nil {
			return made, err
		}
	}
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return made, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	s.mac = bridge.Attrs().HardwareAddr
	var errs []error
	ports, published := 0, false
	for _, a := range attached {
		published = published || a.mapped(true) > 0
		link, err := netlink.LinkByName(a.port)
		if isNoLink(err) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed, err := ensurePort(bridge, link)
		if changed {
			ports++
		}
		errs = append(errs, err)
	}
	if ports > 0 {
		made = append(made, fmt.Sprintf("the connection of %s to the bridge", pods(ports)))
	}
	if before == nil && published {
		// The portmap plugin does this, too: without the setting, 127.0.0.1:HOSTPORT of this host doesn't work.
		errs = append(errs, n.routeLoopback())
	}
	return made, errors.Join(errs...)
}

// repairPorts restores missing host ports of pods. A pod whose host ports are missing may be in its teardown. So
// repairPorts restores them only if they are still missing after the duration settle, and returns the time of the next
// check as again. It restores them at once if certain is true: then another program is certain to have removed rules.
func (s *keeping) repairPorts(ctx context.Context, attached []attachment,
	certain bool) (made []string, again time.Time, err error) {
	n, now := s.config.Network, time.Now()
	missing, err := n.unmapped(ctx, s.config.Backend, attached)
	if err != nil {
		return nil, again, fmt.Errorf("list the host ports of pods: %w", err)
	}
	suspects := map[string]time.Time{}
	var due []attachment
	for _, a := range missing {
		since, ok := s.suspects[a.sandbox]
		if !ok {
			since = now
		}
		suspects[a.sandbox] = since
		if certain || now.Sub(since) >= settle {
			due = append(due, a)
		} else {
			again = now.Add(settle)
		}
	}
	s.suspects = suspects
	if len(due) == 0 {
		return nil, again, nil
	}
	plugin, err := s.config.Portmap()
	if err != nil {
		return nil, again, fmt.Errorf("make the host ports of %s again: %w", pods(len(due)), err)
	}
	var errs []error
	done := 0
	for i := range due {
		s.restored[due[i].sandbox] = true
		if err := n.mapPorts(ctx, plugin, s.config.Backend, &due[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		done++
		delete(s.suspects, due[i].sandbox)
	}
	if done > 0 {
		made = append(made, "host ports of "+pods(done))
	}
	// A pod that was being created when another program removed the rules has no CNI result yet, so a later check
	// is needed.
	if again.IsZero() {
		again = now.Add(10 * settle)
	}
	return made, again, errors.Join(errs...)
}

// unmapGone deletes restored host ports of pods that are gone: the plugin may have torn down the pod before they
// were restored.
func (s *keeping) unmapGone(ctx context.Context, attached []attachment) error {
	var errs []error
	for sandbox := range s.restored {
		if slices.ContainsFunc(attached, func(a attachment) bool { return a.sandbox == sandbox }) {
			continue
		}
		plugin, err := s.config.Portmap()
		if err == nil {
			err = s.config.Network.UnmapPorts(ctx, plugin, s.config.Backend, sandbox)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.restored, sandbox)
	}
	return errors.Join(errs...)
}

func pods(count int) string {
	if count == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", count)
}
