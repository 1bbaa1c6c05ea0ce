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

// Keeper makes again what other programs take away of a network while pods run: a restarted firewall
// flushes netfilter's rules, an administrator deletes the bridge or switches forwarding off. Only what is
// the network's own is touched. The kernel tells of changes, so that nothing is asked for while there are none.
type Keeper struct {
	config KeeperConfig
	look   wake.Debounce

	// mu guards what the watch and the commands share with Run.
	mu      sync.Mutex
	dirty   parts
	by      string
	problem Problem
}

// KeeperConfig is what a Keeper works with. Every field is needed.
type KeeperConfig struct {
	Network Network
	Backend Backend
	// Portmap returns the path of the portmap plugin.
	Portmap func() (string, error)
	// Restored is called with a sentence after something was made again.
	Restored func(message string)
	Log      logr.Logger
}

// Problem is what keeps the network from being as it should be. The zero value is none.
type Problem struct {
	Message string
	Since   time.Time
}

// parts are what may have changed.
type parts struct{ links, rules bool }

const (
	// lookGap is how long after a look the next one is, at least: each reads what is known of all pods, and pods that
	// start wake it.
	lookGap = time.Second
	// settle is how long host ports may be missing of a pod, as they are while it is taken down.
	settle = time.Second
	// writing is how old an unreadable CNI result may be and still be one that is being written.
	writing = 5 * time.Second
	// repairPause is how long repairs are apart at least, where another program undoes each of them. After foughtAfter
	// repairs, none of which held for calm, that is a problem.
	repairPause = time.Second
	calm        = 10 * time.Second
	foughtAfter = 20
	// longestPause is how long tries that fail are apart: lookGap at first, doubling.
	longestPause = 30 * time.Second
	// legacyPoll is how often rules of iptables-legacy are looked at: it alone tells nobody of changes.
	legacyPoll = 30 * time.Second
)

// NewKeeper returns a Keeper that does nothing before Run.
func NewKeeper(config KeeperConfig) *Keeper {
	return &Keeper{config: config, look: wake.NewDebounce(lookGap)}
}

// Problem is what is wrong at present.
func (k *Keeper) Problem() Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// Run keeps the network until ctx ends. At its beginning it makes again what was taken away while no agent ran.
func (k *Keeper) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch.Go(func() { k.watch(ctx) })
	state := keeping{Keeper: k, legacy: k.config.Backend == IPTables && !tellsChanges(ctx), restored: map[string]bool{},
		suspects: map[string]time.Time{}}
	var began, next time.Time
	for k.look.Await(ctx, began, next) {
		began = time.Now()
		next = state.round(ctx, began)
	}
	return nil
}

// tellsChanges reports whether the kernel tells of changes of iptables' rules: those of nftables.
func tellsChanges(ctx context.Context) bool {
	version, err := output(ctx, "iptables", "-V")
	return err == nil && strings.Contains(string(version), "nf_tables")
}

// watch has Run look where something may have changed. A watch that ends is begun again.
func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.config.Network.watch(ctx, k)
		if ctx.Err() != nil {
			return
		}
		k.config.Log.Error(err, "Can't watch the pod network; what other programs remove of it isn't noticed at once")
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

// take returns what to look at, and who changed rules last.
func (k *Keeper) take() (parts, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, by := k.dirty, k.by
	k.dirty, k.by = parts{}, ""
	return p, by
}

// setProblem has it that this is wrong, or with an empty message nothing. It reports whether that is new.
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

// keeping is what Run knows from one look to the next.
type keeping struct {
	*Keeper
	legacy bool
	// mac is the bridge's, under which pods know the host.
	mac net.HardwareAddr
	// baseline is how the rules look when they are in force; empty before the first look.
	baseline string
	// suspects have had host ports missing since these times; restored have had them made again by us, which may
	// have been too late for their teardown.
	suspects map[string]time.Time
	restored map[string]bool
	// broken are the sandboxes whose results were logged as unreadable.
	broken map[string]bool
	// repairs is how many there were without calm, the last at repaired.
	repairs  int
	repaired time.Time
	// failures is how many tries have failed since one that didn't. Host ports aren't touched before retry then: each
	// try to make a pod's ports changes netfilter, which wakes us.
	failures int
	retry    time.Time
	// pending is what is still to be looked at, since the last try failed or had to wait.
	pending parts
}

// round looks at what may have changed, makes again what is missing, and returns when to look again whatever happens.
func (s *keeping) round(ctx context.Context, now time.Time) (next time.Time) {
	p, by := s.take()
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

// soonest is when the next look is due without a wake-up: at next, if that isn't zero, or when it has been calm.
func (s *keeping) soonest(next time.Time) time.Time {
	if s.repaired.IsZero() {
		return next
	}
	if end := s.repaired.Add(calm); next.IsZero() || end.Before(next) {
		return end
	}
	return next
}

// repair makes again what is missing of the pending parts and says what that was. again is when to look
// again at rules that may be missing for a good reason. Without mayMap host ports are left as they are.
func (s *keeping) repair(ctx context.Context, mayMap bool) (made []string, again time.Time, err error) {
	n := s.config.Network
	var errs []error
	if s.pending.rules { // the guard before the bridge
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
		said, err := s.repairLinks(bridge, attached)
		made = append(made, said...)
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

// leaveOut logs each broken result once. again is when to read those again that may still be written.
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

// repairRules makes the network's own rules again where they aren't as they were.
func (s *keeping) repairRules(ctx context.Context) (changed bool, err error) {
	n, backend := s.config.Network, s.config.Backend
	now, err := n.rules(ctx, backend)
	if err != nil {
		return false, fmt.Errorf("list the pod network's rules: %w", err)
	}
	if now != "" && now == s.baseline {
		return false, nil
	}
	// At the first look they are made whatever is there, which isn't worth a word unless they were missing.
	changed = s.baseline != "" || now == ""
	if err := n.EnsureRules(ctx, backend); err != nil {
		return false, err
	}
	s.baseline, err = n.rules(ctx, backend)
	return changed, err
}

// plugged returns those attachments whose interface is there, and the bridge, if it is. The others' pods are being
// taken down.
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

// repairLinks makes forwarding, the bridge and the pods' connections to it again.
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
		// As the portmap plugin set it, without which 127.0.0.1:HOSTPORT of this host goes nowhere.
		errs = append(errs, n.routeLoopback())
	}
	return made, errors.Join(errs...)
}

// repairPorts makes host ports of pods again that are missing. It waits a while, until again, for those of a pod that
// may be about to be taken down, unless it is plain that something was removed.
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
	// A pod that was being made while the rules went isn't remembered yet.
	if again.IsZero() {
		again = now.Add(10 * settle)
	}
	return made, again, errors.Join(errs...)
}

// unmapGone deletes the host ports that were made again of pods that are gone: the plugin had deleted them already.
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
