/*
 * pause holds a pod's namespaces: it reaps orphans as the pod's PID 1 and exits
 * at once on SIGTERM or SIGINT.
 *
 * It uses no C library, so that it costs a page or two of memory per pod.
 * Signals stay blocked and are waited for. A blocked signal is queued even for
 * PID 1, which ignores signals without a handler otherwise (signal(7),
 * pid_namespaces(7)), so no handler is needed.
 */

#if defined(__x86_64__)
enum { SYS_wait4 = 61, SYS_exit = 60, SYS_rt_sigprocmask = 14, SYS_rt_sigtimedwait = 128 };

static long call(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum { SYS_wait4 = 260, SYS_exit = 93, SYS_rt_sigprocmask = 135, SYS_rt_sigtimedwait = 137 };

static long call(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#else
#error "pause: write the system call of this architecture here"
#endif

enum { SIGINT = 2, SIGTERM = 15, SIGCHLD = 17 };
enum { SIG_BLOCK = 0, WNOHANG = 1, SIGSET_BYTES = 8 };

#define BIT(sig) (1UL << ((sig) - 1))

void _start(void)
{
	unsigned long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);

	call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, SIGSET_BYTES);
	for (;;) {
		long sig = call(SYS_rt_sigtimedwait, (long)&set, 0, 0, SIGSET_BYTES);

		if (sig == SIGINT || sig == SIGTERM)
			call(SYS_exit, 0, 0, 0, 0);
		while (call(SYS_wait4, -1, 0, WNOHANG, 0) > 0)
			;
	}
}
