/* What a test preloads into a program: it kills the program at a file operation, records file operations, and lets the
   wall clock jump. Nothing here is part of Foretoken.

   SHIM_ROOT     the folder whose file operations count (an absolute path)
   SHIM_KILL_AT  kill the program with SIGKILL just before its Nth operation (from 1)
   SHIM_LOG      file to which the operations are appended, for a replay that forgets what was not synced
   SHIM_JUMP_S   the wall clock (CLOCK_REALTIME) jumps by this many seconds forth and back, at every other call

   A record of the log is a header of five 64-bit numbers (operation, file, offset, length of a, length of b), then the
   bytes a and b. The numbers of operations are in power.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, RENAME, UNLINK, MKDIR, RMDIR, SYNC, TRUNCATE };

#define FILES 65536
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char watched[FILES]; /* Is this descriptor a file or a folder below the root? */
static const char *root;
static size_t root_length;
static long kill_at, operations;
static int log_fd = -1;
static long jump_s;

#define REAL(type, name, ...) static type (*real_##name)(__VA_ARGS__)
REAL(int, open64, const char *, int, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(int, rename, const char *, const char *);
REAL(int, unlink, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdir, const char *, mode_t);
REAL(int, rmdir, const char *);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, ftruncate64, int, off64_t);
REAL(int, clock_gettime, clockid_t, struct timespec *);

#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)
__attribute__((constructor)) static void begin(void) {
    FIND(open64), FIND(write), FIND(writev), FIND(rename), FIND(unlink), FIND(unlinkat), FIND(mkdir), FIND(rmdir);
    FIND(fsync), FIND(fdatasync), FIND(ftruncate64), FIND(clock_gettime);
    if (getenv("SHIM_KILL_AT")) kill_at = atol(getenv("SHIM_KILL_AT"));
    if (getenv("SHIM_JUMP_S")) jump_s = atol(getenv("SHIM_JUMP_S"));
    const char *log = getenv("SHIM_LOG");
    if (log) log_fd = real_open64(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    root = getenv("SHIM_ROOT");
    root_length = root ? strlen(root) : 0;
}

/* The path below the root into `to`; 0 if the path is elsewhere. */
static int below(const char *path, char *to) {
    if (!root) return 0;
    char full[PATH_MAX];
    if (path[0] == '/') snprintf(full, sizeof full, "%s", path);
    else {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        if (snprintf(full, sizeof full, "%s/%s", here, path) >= (int)sizeof full) return 0;
    }
    if (strncmp(full, root, root_length) || (full[root_length] && full[root_length] != '/')) return 0;
    snprintf(to, PATH_MAX, "%s", full[root_length] ? full + root_length + 1 : ".");
    return 1;
}

static void count(void) {
    if (root && ++operations == kill_at) kill(getpid(), SIGKILL);
}

static void record(int64_t what, int64_t file, int64_t at, const void *a, size_t a_len, const void *b, size_t b_len) {
    if (log_fd < 0) return;
    int64_t head[5] = {what, file, at, (int64_t)a_len, (int64_t)b_len};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)a, a_len}, {(void *)b, b_len}};
    if (real_writev(log_fd, parts, 3) != (ssize_t)(sizeof head + a_len + b_len)) abort();
}

#define LOCKED(...) { pthread_mutex_lock(&lock); __VA_ARGS__; int was = errno; pthread_mutex_unlock(&lock); errno = was; }
#define WATCHED(fd) ((fd) >= 0 && (fd) < FILES && watched[fd])

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    char name[PATH_MAX];
    int fd;
    LOCKED({
        int ours = below(path, name), makes = flags & (O_CREAT | O_TRUNC);
        if (ours && makes) count();
        fd = real_open64(path, flags, mode);
        if (fd >= 0 && fd < FILES) watched[fd] = (char)ours;
        struct stat is;
        if (ours && fd >= 0 && !fstat(fd, &is)) record(OPEN, (int64_t)is.st_ino, makes, name, strlen(name), "", 0);
    })
    return fd;
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open64(path, flags, mode);
}

static int64_t inode(int fd) {
    struct stat is;
    return fstat(fd, &is) ? -1 : (int64_t)is.st_ino;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!WATCHED(fd)) return real_write(fd, bytes, length);
    ssize_t done;
    LOCKED({
        count();
        off_t at = lseek(fd, 0, SEEK_CUR);
        done = real_write(fd, bytes, length);
        if (done > 0) record(WRITE, inode(fd), at, bytes, (size_t)done, "", 0);
    })
    return done;
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    if (!WATCHED(fd)) return real_writev(fd, parts, n);
    /* A part may be written alone: the caller goes on with the rest. */
    for (int i = 0; i < n; i++) if (parts[i].iov_len) return write(fd, parts[i].iov_base, parts[i].iov_len);
    return 0;
}
int rename(const char *from, const char *to) {
    char a[PATH_MAX], b[PATH_MAX];
    int done;
    LOCKED({
        int ours = below(from, a) && below(to, b);
        if (ours) count();
        done = real_rename(from, to);
        if (ours && !done) record(RENAME, 0, 0, a, strlen(a), b, strlen(b));
    })
    return done;
}
#define ON_A_PATH(name, what, call, ...)                          \
    int name(__VA_ARGS__) {                                       \
        char at[PATH_MAX];                                        \
        int done;                                                 \
        LOCKED({                                                  \
            int ours = below(path, at);                           \
            if (ours) count();                                    \
            done = call;                                          \
            if (ours && !done) record(what, 0, 0, at, strlen(at), "", 0); \
        })                                                        \
        return done;                                              \
    }
ON_A_PATH(unlink, UNLINK, real_unlink(path), const char *path)
ON_A_PATH(mkdir, MKDIR, real_mkdir(path, mode), const char *path, mode_t mode)
ON_A_PATH(rmdir, RMDIR, real_rmdir(path), const char *path)

/* Rust removes a whole folder this way. */
int unlinkat(int folder, const char *path, int flags) {
    char at[PATH_MAX], link[64], where[PATH_MAX], full[2 * PATH_MAX];
    int done;
    LOCKED({
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = folder == AT_FDCWD ? -1 : readlink(link, where, sizeof where - 1);
        if (n >= 0) where[n] = 0, snprintf(full, sizeof full, "%s/%s", where, path);
        else snprintf(full, sizeof full, "%s", path);
        int ours = below(full, at);
        if (ours) count();
        done = real_unlinkat(folder, path, flags);
        if (ours && !done) record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, at, strlen(at), "", 0);
    })
    return done;
}
#define ON_A_FILE(name, what, at, call, ...)                      \
    int name(__VA_ARGS__) {                                       \
        if (!WATCHED(fd)) return call;                            \
        int done;                                                 \
        LOCKED({                                                  \
            count();                                              \
            done = call;                                          \
            if (!done) record(what, inode(fd), at, "", 0, "", 0); \
        })                                                        \
        return done;                                              \
    }
ON_A_FILE(fsync, SYNC, 0, real_fsync(fd), int fd)
ON_A_FILE(fdatasync, SYNC, 0, real_fdatasync(fd), int fd)
ON_A_FILE(ftruncate64, TRUNCATE, length, real_ftruncate64(fd, length), int fd, off64_t length)

int clock_gettime(clockid_t which, struct timespec *to) {
    static int calls;
    int done = real_clock_gettime(which, to);
    if (!done && jump_s && which == CLOCK_REALTIME && __sync_fetch_and_add(&calls, 1) % 2) to->tv_sec += jump_s;
    return done;
}
