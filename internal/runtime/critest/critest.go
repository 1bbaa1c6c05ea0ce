// Package critest is the contract between deckhand and a container runtime: tests of the CRI behaviour that
// deckhand relies on. They run against every supported runtime: the in-memory one of deckhand's own tests (memcri)
// and containerd.
//
// If the two differ, containerd is right.
package critest

import (
	"testing"

	"google.golang.org/grpc"
)

// Harness is one runtime under test. Every test creates its own pods, so a runtime may be shared between tests and
// run other pods.
type Harness struct {
	// Connect opens a connection, which the suite closes.
	Connect func() (*grpc.ClientConn, error)
	// Image exists in the runtime. Its program supports the commands
	//
	//	sleep D        end with 0 after D ("1h")
	//	exit CODE [D]  end with CODE, after D
	//	logs N         write N lines, odd ones to stdout and even ones to stderr, and end
	//	serve          handle SIGTERM, write a line, run until SIGTERM and end with 0
	//	ignore-term    ignore SIGTERM, write a line and run until SIGKILL (or SIGQUIT)
	//	burst BYTES    write this many bytes as lines of 100, and end
	//	cat FILE       write the contents of FILE, and end; /dev/zero exhausts the memory
	Image string
	// Program is the command to which these commands (sleep, exit, ...) are appended. It may be empty if Image has an
	// entrypoint.
	Program []string
	// CgroupParent returns a pod's cgroup, in the cgroupfs driver's form; nil leaves it to the runtime.
	CgroupParent func(podUID string) string
	// RunsPrograms means that programs really run, so that tests can check their view of the container.
	RunsPrograms bool
	// Limits reports the limits in a container's cgroup; nil if there is no cgroup.
	Limits func(t *testing.T, podUID, containerID string) (cpuShares, cpuQuota, memory int64)
	// Crash kills the runtime's process; Restart starts it again and returns when it serves. Tests that need them
	// are skipped if they are nil.
	Crash, Restart func(t *testing.T)
}

// Run runs the suite. newHarness is called for each test; it registers its cleanup with t.Cleanup.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *fixture)
	}{
		{"Ready", testReady},
		{"Images", testImages},
		{"SandboxLifecycle", testSandboxLifecycle},
		{"SandboxName", testSandboxName},
		{"SandboxAddresses", testSandboxAddresses},
		{"SandboxTakesContainersAlong", testSandboxTakesContainersAlong},
		{"ContainerLifecycle", testContainerLifecycle},
		{"ExitCodes", testExitCodes},
		{"StartFailure", testStartFailure},
		{"StartOnce", testStartOnce},
		{"CreateNeeds", testCreateNeeds},
		{"RestartAttempts", testRestartAttempts},
		{"Gone", testGone},
		{"StopGrace", testStopGrace},
		{"StopKillsAfterGrace", testStopKillsAfterGrace},
		{"StopShortened", testStopShortened},
		{"StopNow", testStopNow},
		{"StopGivenUp", testStopGivenUp},
		{"StopSignal", testStopSignal},
		{"RemoveRunning", testRemoveRunning},
		{"ListSandboxes", testListSandboxes},
		{"ListContainers", testListContainers},
		{"StreamedLists", testStreamedLists},
		{"ReservedNames", testReservedNames},
		{"BrokenOffCreates", testBrokenOffCreates},
		{"EventsOfALife", testEventsOfALife},
		{"EventsFollowCalls", testEventsFollowCalls},
		{"EventsToEveryReader", testEventsToEveryReader},
		{"EventsAfterReconnect", testEventsAfterReconnect},
		{"Logs", testLogs},
		{"LogReopen", testLogReopen},
		{"Exec", testExec},
		{"ExecTimeout", testExecTimeout},
		{"ExecOutput", testExecOutput},
		{"ExecEndsWithContainer", testExecEndsWithContainer},
		{"UpdateResources", testUpdateResources},
		{"UpdateSandboxResources", testUpdateSandboxResources},
		{"Stats", testStats},
		{"OutOfMemory", testOutOfMemory},
		{"Target", testTarget},
		{"User", testUser},
		{"RuntimeRestart", testRuntimeRestart},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newFixture(t, newHarness(t))) })
	}
}
