/*
 * Stands between decklog and the kernel: writes down in one global order what is done to the files below a directory,
 * kills the process before or after the Nth step, and lets calls fail. Loaded with LD_PRELOAD; Rust's standard library
 * and SQLite both reach the kernel through these functions of libc.
 *
 *   DECKLOG_SHIM_ROOT   the directory; files outside of it are nobody's business
 *   DECKLOG_SHIM_LOG    appended to: one record for each change and sync (tests/power/trace.rs reads it); SIGUSR2 then
 *                       kills the process, but neither that nor its exit comes between a change and its record
 *   DECKLOG_SHIM_STEPS  set: every step is recorded too, sends and receives included
 *   DECKLOG_SHIM_PORT   only sends to and receives from this TCP port are steps
 *   DECKLOG_SHIM_KILL   "before:N" or "after:N"; "stop:N" only stops it there (SIGSTOP)
 *   DECKLOG_SHIM_FAULT  rules, separated by ';': OPERATION,SUFFIX,ERRNO,FIRST,COUNT,WHILE
 *                       the FIRST-th and COUNT-1 more calls of OPERATION (open write sync trunc rename unlink mkdir
 *                       read socket) on a path that ends with SUFFIX fail with ERRNO; with 0 a write is cut in half.
 *                       They are counted only while the file WHILE exists, where it is given.
 *
 * One lock is held over each change and its record, so that the order in the log is the order in which it happened.
 * The index of the WAL (-shm) is not looked at: SQLite builds it anew.
 *
 * syncfs is called past libc, on a directory that is opened for that alone: where a directory "evidence" is closed that was never synced
 * by fsync, everything below it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, SYNC_DIR, RENAME, UNLINK, MKDIR, MARK, STEP, SYNC_FS };
enum { MAX_FD = 4096, MAX_PATH = 512, MAX_RULES = 8 };

struct record {
    uint32_t length; /* of what follows this header */
    uint32_t kind;
    uint64_t inode;
    uint64_t at;
    uint32_t first;  /* length of the first part of what follows: a path */
    uint32_t unused;
};

struct rule {
    char operation[16], suffix[128], trigger[MAX_PATH];
    int error;
    long first, count, seen;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[MAX_PATH];
static size_t root_length;
static int log_fd = -1, steps_recorded, kill_after, kill_by = SIGKILL, only_port;
static long kill_at, steps;
static volatile sig_atomic_t dying;
static struct rule rules[MAX_RULES];
static int rule_count;
static char paths[MAX_FD][MAX_PATH]; /* of the open files below the root; empty for all others */
static char whole[MAX_FD]; /* of these, directories whose file system is synced */

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

static void release(void) {
    pthread_mutex_unlock(&lock);
    if (dying) die();
}

/* A kill that never comes between something and its record. */
static void kill_cleanly(int signal) {
    (void)signal;
    if (!pthread_mutex_trylock(&lock)) die();
    dying = 1;
}

/* No thread is ended between a change and its record: from here on none begins another change. */
__attribute__((destructor)) static void end(void) { pthread_mutex_lock(&lock); }

#define NEXT(name) __typeof__(name) *next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("DECKLOG_SHIM_ROOT");
    if (text) {
        snprintf(root, sizeof root, "%s/", text);
        root_length = strlen(root);
    }
    if ((text = getenv("DECKLOG_SHIM_LOG"))) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        /* Out of the way of everything that counts descriptors. */
        log_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, MAX_FD / 8);
        syscall(SYS_close, fd);
        signal(SIGUSR2, kill_cleanly);
    }
    steps_recorded = getenv("DECKLOG_SHIM_STEPS") != NULL;
    if ((text = getenv("DECKLOG_SHIM_PORT"))) only_port = atoi(text);
    if ((text = getenv("DECKLOG_SHIM_KILL"))) {
        kill_after = text[0] == 'a';
        if (text[0] == 's') kill_by = SIGSTOP;
        kill_at = atol(strchr(text, ':') + 1);
    }
    if ((text = getenv("DECKLOG_SHIM_FAULT"))) {
        char *copy = strdup(text), *outer = NULL;
        for (char *one = strtok_r(copy, ";", &outer); one && rule_count < MAX_RULES; one = strtok_r(NULL, ";", &outer)) {
            struct rule *rule = &rules[rule_count++];
            char *field[6] = {"", "", "0", "1", "1", ""};
            for (int at = 0; at < 6 && one; at++) field[at] = strsep(&one, ",");
            snprintf(rule->operation, sizeof rule->operation, "%s", field[0]);
            snprintf(rule->suffix, sizeof rule->suffix, "%s", field[1]);
            rule->error = atoi(field[2]);
            rule->first = atol(field[3]);
            rule->count = atol(field[4]);
            snprintf(rule->trigger, sizeof rule->trigger, "%s", field[5]);
        }
        free(copy);
    }
}

static int below(const char *path) {
    size_t length = path ? strlen(path) : 0;
    if (!root_length || length < root_length - 1 || length >= MAX_PATH) return 0;
    if (strncmp(path, root, root_length - 1) || (path[root_length - 1] && path[root_length - 1] != '/')) return 0;
    return length < 4 || strcmp(path + length - 4, "-shm");
}

static const char *path_of(int fd) { return fd >= 0 && fd < MAX_FD ? paths[fd] : ""; }

static void record(uint32_t kind, uint64_t inode, uint64_t at, const char *path, const void *data, size_t length) {
    if (log_fd < 0) return;
    size_t first = path ? strlen(path) : 0;
    struct record head = {(uint32_t)(first + length), kind, inode, at, (uint32_t)first, 0};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, first}, {(void *)data, length}};
    int saved = errno;
    /* One write to a file that is opened for appending is one piece, also beside another process. */
    if (syscall(SYS_writev, log_fd, parts, 3) != (long)(sizeof head + first + length)) abort();
    errno = saved;
}

static uint64_t inode_of(int fd) {
    struct stat meta;
    return fstat(fd, &meta) ? 0 : meta.st_ino;
}

/* Counts a step, with the lock held, and says which one it is. */
static long before(const char *name, const char *path) {
    if (only_port && strcmp(name, "send") && strcmp(name, "receive")) return 0;
    long step = ++steps;
    if (steps_recorded) record(STEP, 0, (uint64_t)step, name, path, strlen(path));
    if (step == kill_at && kill_by == SIGSTOP) syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
    else if (step == kill_at && !kill_after) die();
    return step;
}

static void after(long step) {
    if (step && step == kill_at && kill_after) die();
}

/* 0: go on; above: fail with it; -1: do half. */
static int fault(const char *operation, const char *path) {
    for (int at = 0; at < rule_count; at++) {
        struct rule *rule = &rules[at];
        size_t length = strlen(path), suffix = strlen(rule->suffix);
        if (strcmp(rule->operation, operation) || length < suffix || strcmp(path + length - suffix, rule->suffix)) continue;
        if (rule->trigger[0] && syscall(SYS_faccessat, AT_FDCWD, rule->trigger, F_OK)) continue;
        rule->seen++;
        if (rule->seen >= rule->first && rule->seen < rule->first + rule->count) return rule->error ? rule->error : -1;
    }
    return 0;
}

static int opened(const char *path, int flags, mode_t mode) {
    int error;
    if (!below(path)) {
        if (rule_count && (error = fault("open", path))) return errno = error, -1;
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    }
    pthread_mutex_lock(&lock);
    long step = 0;
    int fd = -1, made = (flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
    if ((error = fault("open", path)) > 0) {
        errno = error;
    } else {
        if (made || (flags & O_TRUNC)) step = before(made ? "create" : "truncate", path);
        fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
        if (fd >= MAX_FD) abort();
        if (fd >= 0) {
            strcpy(paths[fd], path);
            size_t length = strlen(path);
            whole[fd] = length > 9 && !strcmp(path + length - 9, "/evidence") && (flags & O_ACCMODE) == O_RDONLY;
            if (made) record(CREATE, inode_of(fd), 0, path, NULL, 0);
            else if (flags & O_TRUNC) record(TRUNCATE, inode_of(fd), 0, NULL, NULL, 0);
        }
        if (step) after(step);
    }
    release();
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags)
    if (path[0] == '/' || dir == AT_FDCWD) return opened(path, flags, mode);
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(flags)
    if (path[0] == '/' || dir == AT_FDCWD) return opened(path, flags, mode);
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int close(int fd) {
    if (fd >= 0 && fd < MAX_FD && paths[fd][0]) {
        pthread_mutex_lock(&lock);
        long step = whole[fd] ? before("sync", paths[fd]) : 0;
        if (whole[fd]) record(SYNC_FS, 0, 0, paths[fd], NULL, 0);
        paths[fd][0] = whole[fd] = 0;
        int done = (int)syscall(SYS_close, fd);
        if (step) after(step);
        release();
        return done;
    }
    return (int)syscall(SYS_close, fd);
}

/* Sends and receives count as steps on sockets of the network alone: others belong to systemd and to the runtime. */
static int is_network(int fd) {
    int domain = 0, saved = errno;
    socklen_t size = sizeof domain;
    int found = !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain != AF_UNIX;
    if (found && only_port) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer;
        int port = 0;
        if (!getpeername(fd, (struct sockaddr *)&peer, &length)) {
            if (peer.ss_family == AF_INET) port = ntohs(((struct sockaddr_in *)&peer)->sin_port);
            else if (peer.ss_family == AF_INET6) port = ntohs(((struct sockaddr_in6 *)&peer)->sin6_port);
        }
        found = port == only_port;
    }
    errno = saved;
    return found;
}

static long counted(const char *name, int fd) {
    if ((!kill_at && !steps_recorded) || !is_network(fd)) return 0;
    pthread_mutex_lock(&lock);
    long step = before(name, "");
    release();
    return step;
}

/* Before data is taken that is there. */
static long receives(int fd) {
    char one;
    int saved = errno;
    int there = (kill_at || steps_recorded) && is_network(fd)
        && syscall(SYS_recvfrom, fd, &one, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) > 0;
    errno = saved;
    return there ? counted("receive", fd) : 0;
}

#define STEPPED(step, call) long step_ = (step); ssize_t done = (call); int saved = errno; if (step_) after(step_); errno = saved; return done

ssize_t send(int fd, const void *data, size_t length, int flags) { NEXT(send); STEPPED(counted("send", fd), next(fd, data, length, flags)); }
ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size) {
    NEXT(sendto);
    STEPPED(counted("send", fd), next(fd, data, length, flags, to, size));
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) { NEXT(sendmsg); STEPPED(counted("send", fd), next(fd, message, flags)); }
ssize_t recv(int fd, void *data, size_t length, int flags) { NEXT(recv); STEPPED(receives(fd), next(fd, data, length, flags)); }
ssize_t recvmsg(int fd, struct msghdr *message, int flags) { NEXT(recvmsg); STEPPED(receives(fd), next(fd, message, flags)); }
ssize_t readv(int fd, const struct iovec *parts, int count) { NEXT(readv); STEPPED(receives(fd), next(fd, parts, count)); }

int socket(int domain, int type, int protocol) {
    int error;
    if (rule_count && domain != AF_UNIX && (error = fault("socket", "")) > 0) return errno = error, -1;
    return (int)syscall(SYS_socket, domain, type, protocol);
}

/* at < 0: where the file stands. */
static ssize_t written(int fd, const void *data, size_t length, off_t at) {
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    int error = fault("write", paths[fd]);
    if (error > 0) {
        errno = error;
    } else {
        if (error < 0 && length > 1) length /= 2;
        long step = before("write", paths[fd]);
        done = at < 0 ? syscall(SYS_write, fd, data, length) : syscall(SYS_pwrite64, fd, data, length, at);
        if (done > 0) {
            off_t from = at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at;
            record(WRITE, inode_of(fd), (uint64_t)from, NULL, data, (size_t)done);
        }
        after(step);
    }
    release();
    return done;
}

/* Also under another number. */
static int is_stdout(int fd) {
    struct stat one, other;
    return !fstat(STDOUT_FILENO, &one) && !fstat(fd, &other) && S_ISREG(other.st_mode) && one.st_ino == other.st_ino;
}

ssize_t write(int fd, const void *data, size_t length) {
    if (path_of(fd)[0]) return written(fd, data, length, -1);
    if ((kill_at || steps_recorded) && is_stdout(fd)) {
        pthread_mutex_lock(&lock);
        long step = before("print", "");
        ssize_t done = syscall(SYS_write, fd, data, length);
        after(step);
        release();
        return done;
    }
    STEPPED(counted("send", fd), syscall(SYS_write, fd, data, length));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (path_of(fd)[0]) return written(fd, parts[0].iov_base, parts[0].iov_len, -1);
    STEPPED(counted("send", fd), syscall(SYS_writev, fd, parts, count));
}

ssize_t read(int fd, void *data, size_t length) { STEPPED(receives(fd), syscall(SYS_read, fd, data, length)); }

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    if (path_of(fd)[0]) return written(fd, data, length, at);
    return syscall(SYS_pwrite64, fd, data, length, at);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return pwrite64(fd, data, length, at); }

ssize_t pread64(int fd, void *data, size_t length, off64_t at) {
    int error;
    if (rule_count && path_of(fd)[0]) {
        pthread_mutex_lock(&lock);
        error = fault("read", paths[fd]);
        release();
        if (error > 0) return errno = error, -1;
    }
    return syscall(SYS_pread64, fd, data, length, at);
}
ssize_t pread(int fd, void *data, size_t length, off_t at) { return pread64(fd, data, length, at); }

static int truncated(int fd, off_t length) {
    if (!path_of(fd)[0]) return (int)syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&lock);
    int done = -1, error = fault("trunc", paths[fd]);
    if (error > 0) {
        errno = error;
    } else {
        long step = before("truncate", paths[fd]);
        done = (int)syscall(SYS_ftruncate, fd, length);
        if (!done) record(TRUNCATE, inode_of(fd), (uint64_t)length, NULL, NULL, 0);
        after(step);
    }
    release();
    return done;
}
int ftruncate(int fd, off_t length) { return truncated(fd, length); }
int ftruncate64(int fd, off64_t length) { return truncated(fd, length); }

static int synced(int fd, long call) {
    if (!path_of(fd)[0]) return (int)syscall(call, fd);
    pthread_mutex_lock(&lock);
    int done = -1, error = fault("sync", paths[fd]);
    if (error > 0) {
        errno = error;
    } else {
        struct stat meta;
        long step = before("sync", paths[fd]);
        done = (int)syscall(call, fd);
        whole[fd] = 0;
        if (!done && !fstat(fd, &meta)) {
            if (S_ISDIR(meta.st_mode)) record(SYNC_DIR, meta.st_ino, 0, paths[fd], NULL, 0);
            else record(SYNC, meta.st_ino, 0, NULL, NULL, 0);
        }
        after(step);
    }
    release();
    return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* A change of names: the call, what it is called, how it is recorded. */
#define RENAMING(operation, kind, path, more, size, call) \
    if (!below(path)) return (int)(call); \
    pthread_mutex_lock(&lock); \
    int done = -1, error = fault(operation, path); \
    if (error > 0) { \
        errno = error; \
    } else { \
        long step = before(operation, path); \
        done = (int)(call); \
        if (!done) record(kind, 0, 0, path, more, size); \
        after(step); \
    } \
    release(); \
    return done

int rename(const char *from, const char *to) { RENAMING("rename", RENAME, from, to, strlen(to), syscall(SYS_rename, from, to)); }
int unlink(const char *path) { RENAMING("unlink", UNLINK, path, NULL, 0, syscall(SYS_unlink, path)); }
int rmdir(const char *path) { RENAMING("unlink", UNLINK, path, NULL, 0, syscall(SYS_rmdir, path)); }
int mkdir(const char *path, mode_t mode) { RENAMING("mkdir", MKDIR, path, NULL, 0, syscall(SYS_mkdir, path, mode)); }
