/* The calls of a process that write to a disk: kills the process at one of them, or records them all.

   Preload it. kill_at(n), called from the process, kills it at the n-th call from then on, before the call does
   anything; 0 only counts, and calls() tells how many there were. record_to(file) writes every call that succeeded
   to a file, in the order of their effects, until record_to(NULL); mark(text) adds a line of the caller's own.

   A record is a line, for W with the bytes written after it; a file is named by its inode:
     C inode path    a file was created     M inode path   a folder was       S inode   a file or folder was synced
     W inode at size bytes were written     T inode size   a file was cut     N text    a mark
     R from TAB to   renamed                L from TAB to  linked             U path    a name was removed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long at = -1, count = 0;
static int record = -1;
static pthread_mutex_t one = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

#define REAL(result, name, parameters)                               \
    static result(*real) parameters;                                 \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name)

static void raw(const void *data, size_t size) {
    REAL(ssize_t, write, (int, const void *, size_t));
    if (real(record, data, size) != (ssize_t)size) kill(getpid(), SIGABRT);
}

static void line(const char *format, ...) {
    char text[8192];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || size >= (int)sizeof text) kill(getpid(), SIGABRT);
    raw(text, size);
}

static unsigned long inode(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 ? (unsigned long)about.st_ino : 0;
}

static void step(int fd) {
    if (at < 0 || (fd >= 0 && fd <= 2)) return;
    if (++count == at) kill(getpid(), SIGKILL);
}

void kill_at(long n) { count = 0; at = n; }
long calls(void) { return count; }

void record_to(const char *file) {
    REAL(int, open64, (const char *, int, ...));
    if (record >= 0) close(record);
    record = file ? real(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
}

void mark(const char *text) {
    pthread_mutex_lock(&one);
    if (record >= 0) line("N %s\n", text);
    pthread_mutex_unlock(&one);
}

#define CALL(result, name, parameters, arguments, fd, told)              \
    result name parameters {                                             \
        REAL(result, name, parameters);                                  \
        step(fd);                                                        \
        if (record < 0) return real arguments;                           \
        pthread_mutex_lock(&one);                                        \
        result done = real arguments;                                    \
        if (done >= 0) { told; }                                         \
        pthread_mutex_unlock(&one);                                      \
        return done;                                                     \
    }

static void wrote(int fd, off64_t place, const void *data, ssize_t size) {
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return;
    line("W %lu %lld %zd\n", (unsigned long)about.st_ino, (long long)place, size);
    raw(data, size);
}

/* After an append as after any other write, the file's position is behind what was written. */
CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd,
     wrote(fd, lseek64(fd, 0, SEEK_CUR) - done, data, done))
CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at_), (fd, data, size, at_), fd,
     wrote(fd, at_, data, done))
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at_), (fd, data, size, at_), fd,
     wrote(fd, at_, data, done))
CALL(int, fsync, (int fd), (fd), fd, line("S %lu\n", inode(fd)))
CALL(int, fdatasync, (int fd), (fd), fd, line("S %lu\n", inode(fd)))
CALL(int, ftruncate, (int fd, off_t size), (fd, size), fd, line("T %lu %lld\n", inode(fd), (long long)size))
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), fd, line("T %lu %lld\n", inode(fd), (long long)size))
CALL(int, rename, (const char *from, const char *to), (from, to), -1, line("R %s\t%s\n", from, to))
CALL(int, link, (const char *from, const char *to), (from, to), -1, line("L %s\t%s\n", from, to))
CALL(int, linkat, (int one_, const char *from, int two, const char *to, int flags), (one_, from, two, to, flags), -1,
     line("L %s\t%s\n", from, to))
CALL(int, unlink, (const char *path), (path), -1, line("U %s\n", path))

static void made(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0) line("M %lu %s\n", (unsigned long)about.st_ino, path);
}

/* Folders and files that are made are recorded; they were never a place to kill at, so these only record. */
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, (const char *, mode_t));
    if (record < 0) return real(path, mode);
    pthread_mutex_lock(&one);
    int done = real(path, mode);
    if (done == 0) made(path);
    pthread_mutex_unlock(&one);
    return done;
}

static void opened(int fd, const char *path, int flags, int before) {
    if (!before && (flags & O_CREAT)) line("C %lu %s\n", inode(fd), path);
    else if (flags & O_TRUNC) line("T %lu 0\n", inode(fd));
}

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        REAL(int, name, (const char *, int, ...));                          \
        va_list arguments;                                                  \
        va_start(arguments, flags);                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments);                                                  \
        if (record < 0 || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode); \
        pthread_mutex_lock(&one);                                           \
        int before = access(path, F_OK) == 0, fd = real(path, flags, mode); \
        if (fd >= 0) opened(fd, path, flags, before);                       \
        pthread_mutex_unlock(&one);                                         \
        return fd;                                                          \
    }

OPEN(open)
OPEN(open64)
