/* Kills the process at the n-th call that writes to a disk, before the call does anything. Preload it, then call
   kill_at(n) from the process; 0 only counts, and calls() tells how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long at = -1, count = 0;

void kill_at(long n) { count = 0; at = n; }
long calls(void) { return count; }

static void step(int fd) {
    if (at < 0 || (fd >= 0 && fd <= 2)) return;
    if (++count == at) kill(getpid(), SIGKILL);
}

#define CALL(result, name, parameters, arguments, fd)                    \
    result name parameters {                                             \
        static result(*real) parameters;                                 \
        if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
        step(fd);                                                        \
        return real arguments;                                           \
    }

CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd)
CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at_), (fd, data, size, at_), fd)
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at_), (fd, data, size, at_), fd)
CALL(int, fsync, (int fd), (fd), fd)
CALL(int, fdatasync, (int fd), (fd), fd)
CALL(int, ftruncate, (int fd, off_t size), (fd, size), fd)
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), fd)
CALL(int, rename, (const char *from, const char *to), (from, to), -1)
CALL(int, link, (const char *from, const char *to), (from, to), -1)
CALL(int, unlink, (const char *path), (path), -1)
