// Package agent is the composition root: it builds every module of the agent in one visible list, starts them in that
// order and stops them in reverse.
//
// New builds every part from those before it, wing by wing, and starts nothing. agent.go contains the order of the
// wings and the list of modules; one file per wing builds its parts. Where two parts depend on each other, the
// connection between them is built first (worker.Waker, image.Imports), so that every part exists before another one
// receives it. No part receives the Agent. Package kit/modules runs the list.
//
// The packages below it: cluster builds the parts of the wing cluster, preflight checks the host, reset removes
// everything that an agent created, runonce implements --runonce.
//
// # Start, stop and restart
//
// A restarted agent adopts the running pods and containerd. Stopping the agent changes neither, and `kill -9` differs
// from a graceful stop only in the calls that it interrupts.
//
//   - The lock of the root directory ends with the process. embedded/child finds the running containerd.
//   - Workers start after the ledger of allocations was restored and the runtime was listed. Nothing is removed before
//     every source has reported.
//   - PreparePod is repeated; it is idempotent.
//   - A container that was started or ready stays so until a probe fails; first probes are spread over their period. A
//     hook whose end wasn't recorded runs again.
//   - If the source has the pod's last status, restart counts, last terminations and transition times continue from it
//     (lifecycle/adopt.go); without a checkpoint, started and ready do as well.
//   - A container whose start was interrupted by the agent's end never ran: the instance is created again with the same
//     number.
//   - After a reboot restart counts continue from the logs, and back-offs of the earlier boot are reset.
//
// # Periodic work
//
// A part that is woken by changes isn't polled as well, unless a change could be missed. These timers run while
// nothing changes:
//
//   - pods: probes at their periods (those due within 25 ms together); all workers once per syncFrequency; local
//     storage of pods with limits every 10 s, up to every minute for pods that don't change and are far from their
//     limits, up to every 10 minutes for pods that take long to measure; volumes that hold an old version for a subPath
//     after 5 min;
//   - sources: the manifest directory every fileCheckFrequency, and every second while it can't be read; the URL every
//     httpCheckFrequency;
//   - the runtime: a list every 5 min, and every second while its event stream is down; its status every 20 s, in a
//     cluster every nodeStatusUpdateFrequency; a health check of the embedded containerd every 15 s; images every 5
//     min; log sizes every containerLogMonitorInterval, and more often for logs that grow; log directories every 30
//     min;
//   - the host: free memory, disk space, inodes and processes every minute, more often the nearer their thresholds are,
//     and every 10 s under pressure; the number of processes alone, if it has a threshold, as often as 2,000 more a
//     second could reach that, at most every second; the pod network's rules every 30 s where they are
//     iptables-legacy's, which reports no changes; watchdog notifications at half of systemd's period; on a full disk,
//     every minute, whether there is room for the reserve again, and for images whose archives couldn't be imported;
//   - in a cluster: the node's status is computed every nodeStatusUpdateFrequency and patched at the latest every
//     nodeStatusReportFrequency (up to 50% later); the lease is renewed every quarter of its duration; a watch ends
//     after 5 to 10 min and is opened again, and all objects are listed again after 1 to 2 hours; a silent
//     connection is tested after 20 s; ConfigMaps and Secrets are read again every syncFrequency, or after their TTL
//     with the strategy Cache, unless the strategy is Watch; tokens and certificates have a timer for their renewal.
//
// When no pod has changed for 10 s, the free part of the heap is returned to the kernel, at most every 10 min; without
// a change between, that doesn't happen again.
//
// Gauges are counted when they are scraped. resources/stats measures only when a client asks, and gives one sample to
// all clients that ask within a second. `make bench` measures the cost at rest, `make bench-cluster` compares it with
// the kubelet's.
//
// # Goroutines
//
// Each goroutine has an owner that waits for it: modules belong to modules.Runner, workers to worker.Pool, actions to
// their worker, watches to apiclient, plugins to devices.Manager, volume operations to package operations (which waits
// 2 s for one that hangs in the kernel).
package agent
