// The kernel that is a program (User-mode Linux 6.1) keeps the floating-point state of a process in
// 2,696 bytes: x87, SSE, AVX, AVX-512 and protection keys. Where the CPU has more (AMX), Linux takes
// the state as a whole only, and the guest's first process fails. This library, loaded before the
// C library, adds what is missing as the process has it.
#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <stdarg.h>
#include <unistd.h>

long ptrace(enum __ptrace_request request, ...)
{
	// On no stack: the kernel's are small. There is one CPU, so nobody else is here.
	static char state[1 << 16];
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if ((int)request >= 1 && (int)request <= 3) { // PEEK*: the C library returns the word itself
		long word, failed = syscall(SYS_ptrace, request, pid, addr, &word);
		return failed < 0 ? failed : word;
	}
	int get = request == PTRACE_GETREGSET, set = request == PTRACE_SETREGSET;
	if (!(get || set) || (long)addr != NT_X86_XSTATE)
		return syscall(SYS_ptrace, request, pid, addr, data);

	struct iovec whole = {state, sizeof state}, *part = data;
	long failed = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &whole);
	if (failed < 0)
		return failed;
	if (part->iov_len > whole.iov_len)
		part->iov_len = whole.iov_len;
	if (get) {
		memcpy(part->iov_base, state, part->iov_len);
		return 0;
	}
	memcpy(state, part->iov_base, part->iov_len);
	return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, addr, &whole);
}
