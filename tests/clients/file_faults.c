/* A library for LD_PRELOAD under which calls of one program on files fail. It looks at the files of one folder ("file")
 * and at the memory files of the host store ("memory"), and counts the calls of each function on each of them.
 *
 *   FILE_FOLDER=/path           that folder
 *   FILE_TRACE=/path            one line for each such call: pwrite64.file
 *   FILE_FAIL=pwrite64.file:3:EFFECT    the third of them: an error's number, or
 *                               short (half of the bytes), end (none), flip (one bit of what was read), kill (SIGKILL) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOTHING, FAILS, HALF, NONE, FLIP };

static atomic_int counted;

static const char *place_of_path(const char *path) {
    const char *folder = getenv("FILE_FOLDER");
    if (folder && *folder && !strncmp(path, folder, strlen(folder))) return "file";
    return strncmp(path, "/memfd:gpushare-host", 20) ? NULL : "memory";
}

static const char *place_of(int file) {
    char link[64], path[512] = {0};
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t got = readlink(link, path, sizeof path - 1);
    errno = before;
    return got > 0 ? place_of_path(path) : NULL;
}

static void note(const char *call) {
    const char *path = getenv("FILE_TRACE");
    if (!path) return;
    char line[96];
    int length = snprintf(line, sizeof line, "%s\n", call);
    int file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && syscall(SYS_write, file, line, length) < 0) syscall(SYS_close, file);
    else if (file >= 0) syscall(SYS_close, file);
}

/* The effect on this call, and errno for FAILS. */
static int effect(const char *function, const char *place) {
    const char *rule = getenv("FILE_FAIL");
    char call[64], wanted[64], what[32];
    int nth;
    if (!place) return NOTHING;
    snprintf(call, sizeof call, "%s.%s", function, place);
    note(call);
    if (!rule || sscanf(rule, "%63[^:]:%d:%31s", wanted, &nth, what) != 3 || strcmp(call, wanted)) return NOTHING;
    if (atomic_fetch_add(&counted, 1) + 1 != nth) return NOTHING;
    if (!strcmp(what, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "short")) return HALF;
    if (!strcmp(what, "end")) return NONE;
    if (!strcmp(what, "flip")) return FLIP;
    errno = atoi(what);
    return FAILS;
}

ssize_t pread64(int file, void *bytes, size_t count, off64_t at) {
    int what = effect("pread64", place_of(file));
    if (what == FAILS) return -1;
    if (what == NONE) return 0;
    ssize_t got = syscall(SYS_pread64, file, bytes, what == HALF ? count / 2 : count, at);
    if (what == FLIP && got > 0) ((unsigned char *)bytes)[got / 2] ^= 1;
    return got;
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    int what = effect("pwrite64", place_of(file));
    if (what == FAILS) return -1;
    if (what == NONE) return 0;
    return syscall(SYS_pwrite64, file, bytes, what == HALF ? count / 2 : count, at);
}

int fallocate(int file, int how, off_t at, off_t length) {
    const char *function = how & FALLOC_FL_PUNCH_HOLE ? "punch" : "fallocate";
    return effect(function, place_of(file)) == FAILS ? -1 : syscall(SYS_fallocate, file, how, at, length);
}

int fdatasync(int file) { return effect("fdatasync", place_of(file)) == FAILS ? -1 : syscall(SYS_fdatasync, file); }

int posix_fadvise(int file, off_t at, off_t length, int advice) {
    if (effect("posix_fadvise", place_of(file)) == FAILS) return errno;
    return syscall(SYS_fadvise64, file, at, length, advice) ? errno : 0;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    int mode = 0, before;
    va_start(rest, flags);
    if (flags & (O_CREAT | O_TMPFILE)) mode = va_arg(rest, int);
    va_end(rest);
    char target[512] = {0};
    before = errno;
    const char *real = path;
    if (!strncmp(path, "/proc/self/fd/", 14) && readlink(path, target, sizeof target - 1) > 0) real = target;
    errno = before;
    if (effect("open64", place_of_path(real)) == FAILS) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    if (command == F_DUPFD_CLOEXEC && effect("dup", place_of(file)) == FAILS) return -1;
    return syscall(SYS_fcntl, file, command, argument);
}
