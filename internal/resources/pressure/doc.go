// Package pressure keeps the node usable when it runs short of memory, disk space, inodes or processes
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/): it sets the node's conditions,
// removes dead containers and unused images, and ends one pod at a time.
//
// Decide makes the decisions, without side effects. A Manager observes the node, carries the decisions out and
// publishes the conditions; it is the only writer of nodefacts.Pressure. It doesn't end pods itself: the pod's worker
// reads the eviction (Manager.Termination), saves it and ends the pod.
//
// # Differences from the kubelet
//
// A decision needs figures that were read after the last reclaim or eviction was over. The next pod is chosen only when
// the previous one has no container and no volume any more. A pod without figures counts as a pod that uses nothing,
// instead of as the largest user: a measurement that fails must not end a pod. A pod that uses less than a hundredth of
// the missing amount isn't ended, since that wouldn't help. Signals of containerfs are those of the file system that
// contains it, nodefs or imagefs, so they have no thresholds of their own. The message names the threshold of the
// signal that is met, and the signal.
package pressure
