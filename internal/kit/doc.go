// Package kit is the lowest wing: packages that could be part of any program on Linux, and that every other package may
// import. It has no code of its own.
//
// Its packages don't depend on pods, nodes or API objects. Nevertheless, three of them use libraries of Kubernetes:
// logging writes the log formats of Kubernetes' components, yaml decodes Kubernetes' quantities and times, and safeopen
// uses Kubernetes' rules for path segments.
//
// The packages, by purpose:
//
//   - files: atomicfile replaces a file as a whole, safeopen opens files below directories that pods can write to,
//     filewatch reports changes (inotify), mounts reads the mount table;
//   - concurrency: wake wakes goroutines without data, gate is a semaphore with priorities, modules starts and stops
//     the parts of a program;
//   - processes and sockets: subprocess runs a program and reads its answer, socket listens on unix sockets;
//   - text: yaml decodes strictly and reports lines, terminal makes text safe to show, errtext reads texts
//     of errors, suggest corrects misspelt names;
//   - the program itself: logging, buildinfo; goldentest is for tests.
package kit
