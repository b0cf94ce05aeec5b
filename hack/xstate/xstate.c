// SPDX-License-Identifier: Apache-2.0

/*
 * For LD_PRELOAD into Debian's linux.uml (6.1) on a processor with AMX.
 *
 * User-mode Linux keeps 2696 bytes of extended registers of each of its
 * processes: enough for AVX-512. On a processor with AMX the host has 2816
 * (XTILECFG), gives the first 2696 of them when asked, and takes no less than
 * all of them back: PTRACE_SETREGSET fails with EFAULT (xstateregs_set in
 * arch/x86/kernel/fpu/regset.c), and the guest's init dies at once. This adds
 * zeros for the rest. They are not even looked at: the bit that would load
 * them, in XSTATE_BV among the first bytes, is one that nobody sets who uses
 * no AMX. Newer kernels ask the host for the size.
 */

#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* linux.uml is one thread on this side. XSAVE areas are aligned to 64. */
static unsigned char state[1 << 16] __attribute__((aligned(64)));

/* whole is the host's size of the state of pid, in bytes; 0 when it tells none. */
static size_t whole(pid_t pid)
{
	static size_t size;
	struct iovec all = {state, sizeof state};

	if (size == 0 && syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all) == 0)
		size = all.iov_len;
	return size;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	struct iovec full;
	long word, failed;

	va_start(rest, request);
	pid_t pid = va_arg(rest, pid_t);
	void *addr = va_arg(rest, void *);
	void *data = va_arg(rest, void *);
	va_end(rest);

	switch (request) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER: /* the library returns the word, the kernel stores it */
		failed = syscall(SYS_ptrace, request, pid, addr, &word);
		return failed < 0 ? failed : word;
	case PTRACE_SETREGSET:
		if ((long)addr != NT_X86_XSTATE)
			break;
		const struct iovec *known = data;
		full = (struct iovec){state, whole(pid)};
		if (full.iov_len <= known->iov_len)
			break;
		memcpy(state, known->iov_base, known->iov_len);
		memset(state + known->iov_len, 0, full.iov_len - known->iov_len);
		data = &full;
		break;
	default:
		break;
	}
	return syscall(SYS_ptrace, request, pid, addr, data);
}
