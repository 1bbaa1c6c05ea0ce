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
	// Image is present in the runtime. Its program knows the commands
	//
	//	sleep D        end with 0 after D ("1h")
	//	exit CODE [D]  end with CODE, after D
	//	logs N         write N lines, odd ones to stdout and even ones to stderr, and end
	//	serve          handle SIGTERM, write a line, run until SIGTERM and end with 0
	//	ignore-term    ignore SIGTERM, write a line and run until SIGKILL (or SIGQUIT)
	//	burst BYTES    write so many bytes as lines of 100, and end
	//	cat FILE       write what is in FILE, and end; /dev/zero takes all the memory there is
	Image string
	// Program is the command the words above are added to. It may be empty
	// where Image has an entry point.
	Program []string
	// CgroupParent gives a pod's cgroup, in the cgroupfs driver's form; nil
	// leaves that to the runtime.
	CgroupParent func(podUID string) string
	// RunsPrograms says that programs really run, so that what they see can be looked at.
	RunsPrograms bool
	// Limits reports what a container's control group allows; nil where there is none.
	Limits func(t *testing.T, podUID, containerID string) (cpuShares, cpuQuota, memory int64)
	// Crash ends the runtime's process at once; Restart starts it again and
	// returns when it serves. Without them tests of that are skipped.
	Crash, Restart func(t *testing.T)
}

// Run runs the suite. newHarness is called for each test; it cleans up with
// t.Cleanup what it makes for that test alone.
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
