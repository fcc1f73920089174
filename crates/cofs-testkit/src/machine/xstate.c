/*
 * Preloaded into user-mode Linux: lets its ptrace(2) set the registers of its processes on a CPU whose extended
 * state is larger than it knows (AMX).
 *
 * PTRACE_SETREGSET takes the whole state or nothing (EFAULT). User-mode Linux up to 6.12 has room for what there was up to
 * PKRU (2696 bytes), which is what PTRACE_GETREGSET fills; so what lies behind that is taken from the process itself.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long set_whole_state(pid_t pid, void *kind, const struct iovec *given)
{
    static _Thread_local char state[65536];
    struct iovec whole = {state, sizeof state};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, kind, &whole) < 0)
        return -1;
    memcpy(state, given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, kind, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE)
        return set_whole_state(pid, address, data);
    if (request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER) {
        /* As the C library does: the system call itself puts the word where `data` points. */
        long word;
        long result = syscall(SYS_ptrace, request, pid, address, &word);
        return result < 0 ? result : word;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
