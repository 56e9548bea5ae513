/* What a process changes below one directory, and what it syncs, in one order with all others that are watched.

   Loaded before libc (LD_PRELOAD). Each call below does what libc's does, and then appends a record to a file, both
   under one lock that all processes share: the order of the records is the order in which things happened. What is in
   a record is written in ../recording.py, whose `_HEADER` is `struct header` here; records are in the byte order of the
   machine. Calls that this layer knows, and the model of a disk does not, are recorded as UNKNOWN.

   RECORDER_ROOT is the directory (a real path), RECORDER_FILE the file of records; beside it is FILE.lock, memory that
   the processes share. RECORDER_SYNC_US is how long a sync takes, at most: as on a disk, others go on meanwhile. */
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, MKDIR, REMOVE, RENAME, LINK, WRITE, TRUNCATE, ALLOCATE, ZERO, SYNC, DATASYNC, MARK, MAP, UNKNOWN,
       WRITESYNC };

struct header {
    uint32_t bytes;               /* of the whole record */
    uint16_t operation, path_bytes, other_bytes, spare;
    uint64_t file;                /* inode number */
    uint64_t at;                  /* offset; of a sync the number of records when it began */
    uint64_t size;                /* of a truncation, an allocation, a range of zeros, a write that was synced alone */
};

struct shared {
    pthread_mutex_t mutex;
    uint64_t records, bytes;
};

#define REAL(name)                                                                      \
    ({                                                                                  \
        static __typeof__(&name) found;                                                 \
        if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                 \
        found;                                                                          \
    })
#define SAME(type, name, of, ...) type name(__VA_ARGS__) __attribute__((alias(of)))

static struct shared *shared;
static int record_fd = -1;
static char root[PATH_MAX];
static size_t root_bytes;
static unsigned sync_us;

static void fail(const char *what) {
    fprintf(stderr, "recorder: %s: %s\n", what, strerror(errno));
    _exit(97);
}

/* Also called by the driver, which is not watched itself: its marks go into the same order. */
void recorder_open(const char *directory, const char *path) {
    char lock[PATH_MAX];
    snprintf(lock, sizeof lock, "%s.lock", path);
    int fd = REAL(open)(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600), opened = REAL(open)(path, O_RDWR | O_CREAT, 0600);
    struct stat found;
    if (fd < 0 || opened < 0 || fstat(fd, &found)) fail(path);
    if (found.st_size == 0 && REAL(ftruncate)(fd, sizeof *shared)) fail(lock);
    struct shared *mapped = REAL(mmap)(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) fail(lock);
    close(fd);
    if (found.st_size == 0) { /* the driver is the first */
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mapped->mutex, &kind);
    }
    record_fd = fcntl(opened, F_DUPFD_CLOEXEC, 300); /* out of the way of those who count on low numbers */
    close(opened);
    snprintf(root, sizeof root, "%s", directory);
    root_bytes = strlen(root);
    shared = mapped;
}

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("RECORDER_ROOT"), *path = getenv("RECORDER_FILE"), *us = getenv("RECORDER_SYNC_US");
    if (us) sync_us = atoi(us);
    if (directory && path) recorder_open(directory, path);
}

static __thread sigset_t outside;

/* Signals wait: a server ends its worker by SIGTERM, which must not come between a change and its record. */
void recorder_lock(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared->mutex);
    outside = before;
}

void recorder_unlock(void) {
    sigset_t before = outside;
    pthread_mutex_unlock(&shared->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* To be called under the lock; errno stays. A process that ends in the middle leaves nothing: the next overwrites it. */
static void record(int operation, uint64_t file, uint64_t at, uint64_t size, const char *path, const char *other,
                   const struct iovec *data, int pieces, size_t data_bytes) {
    int error = errno;
    struct header head = {.operation = operation, .file = file, .at = at, .size = size};
    head.path_bytes = path ? strlen(path) : 0;
    head.other_bytes = other ? strlen(other) : 0;
    head.bytes = sizeof head + head.path_bytes + head.other_bytes + data_bytes;
    char *whole = malloc(head.bytes), *end = whole;
    if (!whole) fail("no memory");
    end = mempcpy(end, &head, sizeof head);
    end = mempcpy(end, path, head.path_bytes);
    end = mempcpy(end, other, head.other_bytes);
    for (int piece = 0; piece < pieces && data_bytes; piece++) {
        size_t taken = data[piece].iov_len < data_bytes ? data[piece].iov_len : data_bytes;
        end = mempcpy(end, data[piece].iov_base, taken);
        data_bytes -= taken;
    }
    if (REAL(pwrite)(record_fd, whole, head.bytes, shared->bytes) != (ssize_t)head.bytes) fail("no record");
    free(whole);
    shared->bytes += head.bytes;
    shared->records++;
    errno = error;
}

void recorder_mark(const char *text, size_t bytes) {
    struct iovec data = {(void *)text, bytes};
    recorder_lock();
    record(MARK, 0, 0, 0, NULL, NULL, &data, 1, bytes);
    recorder_unlock();
}

static int is_below(const char *path) {
    return !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

/* Whether an open file or directory is below the root; then its path and its inode number. */
static int is_watched(int fd, char *path, uint64_t *file) {
    struct stat found;
    char name[32];
    int error = errno;
    if (!shared || fd < 0 || fstat(fd, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) {
        errno = error;
        return 0;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(name, path, PATH_MAX - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    *file = found.st_ino;
    errno = error;
    return is_below(path);
}

/* Whether what a name stands for, there or not, is below the root; then its real path. */
static int is_watched_at(int directory, const char *name, char *path) {
    char given[PATH_MAX * 2], parent[PATH_MAX];
    int error = errno;
    if (!shared || !name || !*name) return 0;
    if (*name == '/' || directory == AT_FDCWD)
        snprintf(given, sizeof given, "%s", name);
    else
        snprintf(given, sizeof given, "/proc/self/fd/%d/%s", directory, name);
    size_t end = strlen(given);
    while (end > 1 && given[end - 1] == '/') given[--end] = 0;
    char *last = strrchr(given, '/');
    if (last) *last = 0;
    char *is_there = realpath(last ? (last == given ? "/" : given) : ".", parent);
    if (is_there) snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 300, parent, last ? last + 1 : given);
    errno = error;
    return is_there && is_below(path);
}

static uint64_t inode_of(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

/* Files that are opened. */

static int do_open(int directory, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int changes = flags & (O_CREAT | O_TRUNC | O_SYNC | O_DSYNC) || (flags & O_TMPFILE) == O_TMPFILE;
    if (!changes || !is_watched_at(directory, name, path)) return REAL(openat)(directory, name, flags, mode);
    recorder_lock();
    uint64_t before = inode_of(path);
    int fd = REAL(openat)(directory, name, flags, mode);
    if (fd >= 0) {
        uint64_t file = inode_of(path);
        if ((flags & (O_SYNC | O_DSYNC)) || (flags & O_TMPFILE) == O_TMPFILE)
            record(UNKNOWN, file, 0, flags, path, NULL, NULL, 0, 0);
        if (!before)
            record(CREATE, file, 0, 0, path, NULL, NULL, 0, 0);
        else if (flags & O_TRUNC)
            record(TRUNCATE, file, 0, 0, path, NULL, NULL, 0, 0);
    }
    recorder_unlock();
    return fd;
}

#define MODE(flags, last)                                                               \
    mode_t mode = 0;                                                                    \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {                    \
        va_list more;                                                                   \
        va_start(more, last);                                                           \
        mode = va_arg(more, mode_t);                                                    \
        va_end(more);                                                                   \
    }

int open(const char *name, int flags, ...) {
    MODE(flags, flags);
    return do_open(AT_FDCWD, name, flags, mode);
}
SAME(int, open64, "open", const char *, int, ...);

int openat(int directory, const char *name, int flags, ...) {
    MODE(flags, flags);
    return do_open(directory, name, flags, mode);
}
SAME(int, openat64, "openat", int, const char *, int, ...);

int creat(const char *name, mode_t mode) { return do_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
SAME(int, creat64, "creat", const char *, mode_t);

/* What is written. AT < 0 is where the file stands. */

#define WRITTEN(fd, pieces, count, at, call)                                            \
    char path[PATH_MAX];                                                                \
    uint64_t file;                                                                      \
    if (!is_watched(fd, path, &file)) return call;                                      \
    recorder_lock();                                                                    \
    ssize_t done = call;                                                                \
    if (done > 0) {                                                                     \
        off_t from = (at) >= 0 ? (at) : lseek(fd, 0, SEEK_CUR) - done;                  \
        record(WRITE, file, from, 0, path, NULL, pieces, count, done);                  \
    }                                                                                   \
    recorder_unlock();                                                                  \
    return done

ssize_t write(int fd, const void *data, size_t bytes) {
    struct iovec piece = {(void *)data, bytes};
    WRITTEN(fd, &piece, 1, (off_t)-1, REAL(write)(fd, data, bytes));
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    struct iovec piece = {(void *)data, bytes};
    WRITTEN(fd, &piece, 1, at, REAL(pwrite)(fd, data, bytes, at));
}
SAME(ssize_t, pwrite64, "pwrite", int, const void *, size_t, off64_t);

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    WRITTEN(fd, pieces, count, (off_t)-1, REAL(writev)(fd, pieces, count));
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at) {
    WRITTEN(fd, pieces, count, at, REAL(pwritev)(fd, pieces, count, at));
}
SAME(ssize_t, pwritev64, "pwritev", int, const struct iovec *, int, off64_t);

/* A write that is durable when the call returns: the power may fail between the two. Nothing else of the file is synced
   by it, as far as the record says. */
static ssize_t written_durably(int fd, const struct iovec *pieces, int count, off_t at) {
    char path[PATH_MAX];
    uint64_t file;
    if (!is_watched(fd, path, &file)) return REAL(pwritev2)(fd, pieces, count, at, RWF_DSYNC);
    recorder_lock();
    ssize_t done = REAL(pwritev)(fd, pieces, count, at);
    if (done > 0) record(WRITE, file, at, 0, path, NULL, pieces, count, done);
    recorder_unlock();
    if (done <= 0) return done;
    if (sync_us) usleep(1 + random() % sync_us);
    if (REAL(fdatasync)(fd)) return -1;
    recorder_lock();
    record(WRITESYNC, file, at, done, path, NULL, NULL, 0, 0);
    recorder_unlock();
    return done;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    if (flags == RWF_DSYNC && at >= 0) return written_durably(fd, pieces, count, at);
    WRITTEN(fd, pieces, count, at, REAL(pwritev2)(fd, pieces, count, at, flags));
}
SAME(ssize_t, pwritev64v2, "pwritev2", int, const struct iovec *, int, off64_t, int);

/* Sizes, and what else changes a file. */

#define CHANGED(fd, operation, at, size, call)                                          \
    char path[PATH_MAX];                                                                \
    uint64_t file;                                                                      \
    if (!is_watched(fd, path, &file)) return call;                                      \
    recorder_lock();                                                                    \
    __typeof__(call) done = call;                                                       \
    if (done == 0) record(operation, file, at, size, path, NULL, NULL, 0, 0);           \
    recorder_unlock();                                                                  \
    return done

int ftruncate(int fd, off_t size) { CHANGED(fd, TRUNCATE, 0, size, REAL(ftruncate)(fd, size)); }
SAME(int, ftruncate64, "ftruncate", int, off64_t);

int posix_fallocate(int fd, off_t at, off_t size) {
    CHANGED(fd, ALLOCATE, 0, at + size, REAL(posix_fallocate)(fd, at, size));
}
SAME(int, posix_fallocate64, "posix_fallocate", int, off64_t, off64_t);

int fallocate(int fd, int mode, off_t at, off_t size) {
    int operation = mode == 0 ? ALLOCATE : mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) ? ZERO : UNKNOWN;
    CHANGED(fd, operation, at, mode ? size : at + size, REAL(fallocate)(fd, mode, at, size));
}
SAME(int, fallocate64, "fallocate", int, int, off64_t, off64_t);

int truncate(const char *name, off_t size) {
    int fd = open(name, O_WRONLY | O_CLOEXEC), done = fd < 0 ? -1 : ftruncate(fd, size);
    if (fd >= 0) close(fd);
    return done;
}
SAME(int, truncate64, "truncate", const char *, off64_t);

void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t at) {
    char path[PATH_MAX];
    uint64_t file;
    void *done = REAL(mmap)(where, bytes, protection, flags, fd, at);
    int writes = done != MAP_FAILED && (protection & PROT_WRITE) && (flags & MAP_SHARED) && fd >= 0;
    if (writes && is_watched(fd, path, &file)) {
        recorder_lock();
        record(MAP, file, at, bytes, path, NULL, NULL, 0, 0);
        recorder_unlock();
    }
    return done;
}
SAME(void *, mmap64, "mmap", void *, size_t, int, int, int, off64_t);

ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *at, size_t bytes, unsigned flags) {
    char path[PATH_MAX];
    uint64_t file;
    ssize_t done = REAL(copy_file_range)(from, from_at, fd, at, bytes, flags);
    if (done > 0 && is_watched(fd, path, &file)) {
        recorder_lock();
        record(UNKNOWN, file, 0, bytes, path, NULL, NULL, 0, 0);
        recorder_unlock();
    }
    return done;
}

/* Syncs: what was recorded before one began is durable when it has ended. */

static int do_sync(int fd, int operation, int (*sync)(int)) {
    char path[PATH_MAX];
    uint64_t file, began = 0;
    int is = is_watched(fd, path, &file);
    if (is) {
        recorder_lock();
        began = shared->records;
        recorder_unlock();
        if (sync_us) usleep(1 + random() % sync_us);
    }
    int done = sync(fd);
    if (is && done == 0) {
        recorder_lock();
        record(operation, file, began, 0, path, NULL, NULL, 0, 0);
        recorder_unlock();
    }
    return done;
}

int fsync(int fd) { return do_sync(fd, SYNC, REAL(fsync)); }
int fdatasync(int fd) { return do_sync(fd, DATASYNC, REAL(fdatasync)); }

/* Names. */

#define NAMED(directory, name, operation, call)                                         \
    char path[PATH_MAX];                                                                \
    if (!is_watched_at(directory, name, path)) return call;                             \
    recorder_lock();                                                                    \
    int done = call;                                                                    \
    if (done == 0) record(operation, inode_of(path), 0, 0, path, NULL, NULL, 0, 0);     \
    recorder_unlock();                                                                  \
    return done

int mkdirat(int directory, const char *name, mode_t mode) {
    NAMED(directory, name, MKDIR, REAL(mkdirat)(directory, name, mode));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int directory, const char *name, int flags) {
    NAMED(directory, name, REMOVE, REAL(unlinkat)(directory, name, flags));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

#define MOVED(from, name, to, other, operation, call)                                   \
    char path[PATH_MAX], target[PATH_MAX];                                              \
    int is_from = is_watched_at(from, name, path), is_to = is_watched_at(to, other, target); \
    if (!is_from && !is_to) return call;                                                \
    recorder_lock();                                                                    \
    int done = call;                                                                    \
    if (done == 0)                                                                      \
        record(is_from && is_to ? operation : UNKNOWN, inode_of(target), 0, 0, path, target, NULL, 0, 0); \
    recorder_unlock();                                                                  \
    return done

int renameat2(int from, const char *name, int to, const char *other, unsigned flags) {
    MOVED(from, name, to, other, flags ? UNKNOWN : RENAME, REAL(renameat2)(from, name, to, other, flags));
}
int renameat(int from, const char *name, int to, const char *other) { return renameat2(from, name, to, other, 0); }
int rename(const char *name, const char *other) { return renameat2(AT_FDCWD, name, AT_FDCWD, other, 0); }

int linkat(int from, const char *name, int to, const char *other, int flags) {
    MOVED(from, name, to, other, LINK, REAL(linkat)(from, name, to, other, flags));
}
int link(const char *name, const char *other) { return linkat(AT_FDCWD, name, AT_FDCWD, other, 0); }

int symlinkat(const char *content, int directory, const char *name) {
    NAMED(directory, name, UNKNOWN, REAL(symlinkat)(content, directory, name));
}
int symlink(const char *content, const char *name) { return symlinkat(content, AT_FDCWD, name); }
