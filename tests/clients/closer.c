/* A CUDA driver program that closes descriptors it did not open, as programs that become daemons
 * do, and then continues. One command and one answer a line. It knows nothing of gpushare, and
 * leaves the driver its own descriptors, because no driver works without.
 *
 *   init          -> init RESULT          cuInit, device 0, its primary context
 *   alloc BYTES   -> alloc RESULT
 *   fill BYTES    -> fill COUNT RESULT    allocates until the first refusal
 *   free COUNT    -> free RESULT          the COUNT most recent
 *   info          -> info FREE TOTAL RESULT
 *   cancelled     -> cancelled RESULT     cuMemGetInfo in a thread that has been cancelled; 997 if it did not end as cancelled behind that
 *   launch NS     -> launch RESULT        a kernel of NS nanoseconds, waited for
 *   post NS       -> post 0               a thread does that
 *   posted        -> posted DONE          whether it has
 *   each          -> each COUNT           closes every descriptor from 3 to 1024, one by one; how many were open
 *   range         -> range 0              closes all from 3 on by close_range
 *   reuse COUNT   -> reuse COUNT          opens COUNT files and pairs of sockets of its own, which get the lowest numbers
 *   untouched     -> untouched COUNT      how many of them are as they were: nothing written or moved, closed, or come in
 *   table         -> table 0              opens files until the limit of open files is reached
 *   chroot        -> chroot RESULT        enters an empty folder as its root
 *   setuid ID     -> setuid RESULT        becomes another user for good
 *   lowest        -> lowest NUMBER        the least number that was free at the start and is now the library's, 9999 for none
 *   queue         -> queue ERRNO          opens a message queue
 *   notice        -> notice ERRNO         asks to be told of its next message: busy (16) where it has asked and no descriptor of it was closed
 *   unqueue       -> unqueue ERRNO        closes it
 *   copies        -> copies COUNT         how many threads have it in their table
 *   pipe          -> pipe ERRNO           opens a pipe
 *   ended         -> ended YES            closes its writing end, and whether that was the last one
 *
 * RESULT is the CUresult as a number. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/driver.h"

typedef unsigned long long dptr;
enum { LAST = 1024, MOST = 2048 };

static void *context, *function;
static dptr live[4096];
static size_t count;
static uint64_t post_ns;
static atomic_int posted;
static struct { int number, peer; struct stat is; } mine[MOST];
static int opened;
static char inherited[LAST + 1];

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static int begin(void) {
    int device;
    void *module;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) exit(2);
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int allocate(size_t size) {
    if (count == sizeof live / sizeof *live) return 9999;
    int result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&live[count], size);
    count += !result;
    return result;
}

static int give_back(size_t number) {
    int first = 0;
    while (number-- && count) {
        int result = CALL("cuMemFree_v2", (dptr))(live[--count]);
        if (!first) first = result;
    }
    return first;
}

static int spin(uint64_t ns) {
    void *parameters[] = {&ns};
    TRY(CALL("cuLaunchKernel", LAUNCH)(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    return CALL("cuCtxSynchronize", (void))();
}

static void *poster(void *unused) {
    if (!CALL("cuCtxSetCurrent", (void *))(context) && !spin(post_ns)) posted = 1;
    return unused;
}

static int post(uint64_t ns) {
    pthread_t thread;
    post_ns = ns;
    posted = 0;
    if (pthread_create(&thread, NULL, poster, NULL)) return 1;
    return pthread_detach(thread);
}

/* Its cancellation acts at the first cancellation point that it comes to. cuMemGetInfo has none. */
static void *cancelled(void *answer) {
    size_t available, all;
    CALL("cuCtxSetCurrent", (void *))(context);
    pthread_cancel(pthread_self());
    *(int *)answer = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&available, &all);
    pthread_testcancel();
    return NULL;
}

static int ask_cancelled(void) {
    pthread_t thread;
    void *end;
    int answer = 996;
    TRY(pthread_create(&thread, NULL, cancelled, &answer));
    TRY(pthread_join(thread, &end));
    return end == PTHREAD_CANCELED ? answer : 997;
}

/* Whether a descriptor is the driver's, or one of the program's own three. */
static int is_kept(int number) {
    char link[64], name[512];
    if (number < 3) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return strstr(name, "softgpu") != NULL;
}

static int close_each(void) {
    int closed = 0;
    for (int number = 3; number <= LAST; number++)
        if (!is_kept(number)) closed += !close(number);
    return closed;
}

static int close_ranges(void) {
    int from = 3;
    for (int number = 3; number <= MOST; number++) {
        if (!is_kept(number)) continue;
        if (number > from && syscall(SYS_close_range, from, number - 1, 0)) return 1;
        from = number + 1;
    }
    return syscall(SYS_close_range, from, ~0u, 0) != 0;
}

static int reuse(int wanted) {
    while (opened < wanted && opened < MOST) {
        int pair[2];
        char name[] = "/tmp/closerXXXXXX";
        if (opened % 2) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) break;
            mine[opened].peer = pair[1];
        } else {
            pair[0] = mkstemp(name);
            if (pair[0] < 0) break;
            unlink(name);
            if (write(pair[0], "mine", 4) != 4) break;
            mine[opened].peer = -1;
        }
        mine[opened].number = pair[0];
        fstat(pair[0], &mine[opened++].is);
    }
    return opened;
}

static int untouched(void) {
    int good = 0;
    for (int i = 0; i < opened; i++) {
        struct stat now;
        char bytes[8];
        int number = mine[i].number, peer = mine[i].peer;
        if (fstat(number, &now) || now.st_ino != mine[i].is.st_ino || now.st_dev != mine[i].is.st_dev) continue;
        if (peer < 0)
            good += lseek(number, 0, SEEK_CUR) == 4 && now.st_size == 4 && pread(number, bytes, 8, 0) == 4 && !memcmp(bytes, "mine", 4);
        else
            good += recv(peer, bytes, 1, MSG_DONTWAIT) < 0 && recv(number, bytes, 1, MSG_DONTWAIT) < 0 && send(number, "x", 1, MSG_NOSIGNAL) == 1
                    && recv(peer, bytes, 1, MSG_DONTWAIT) == 1;
    }
    return good;
}

static int fill_table(void) {
    struct rlimit most = {1024, 1024};
    if (setrlimit(RLIMIT_NOFILE, &most)) return 1;
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {}
    return errno != EMFILE;
}

static int enter_empty_root(void) {
    char name[] = "/tmp/closerXXXXXX";
    if (!mkdtemp(name)) return 1;
    if (chdir(name) || rmdir(name) || chroot(".")) return 1;
    return access("/proc/self", F_OK) == 0;
}

/* Neither inherited, nor the driver's. */
static int lowest(void) {
    for (int number = 3; number <= LAST; number++)
        if (fcntl(number, F_GETFD) >= 0 && !is_kept(number) && !inherited[number]) return number;
    return 9999;
}

static char queue_name[64];
static int queue = -1, ends[2];

static int open_queue(void) {
    snprintf(queue_name, sizeof queue_name, "gpushare-closer-%d", getpid());
    queue = (int)syscall(SYS_mq_open, queue_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, NULL);
    int failed = queue < 0 ? errno : 0;
    syscall(SYS_mq_unlink, queue_name);
    return failed;
}

static int ask_for_notice(void) {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    return syscall(SYS_mq_notify, queue, &none) ? errno : 0;
}

static int copies(void) {
    char folder[64], link[64 + 256], name[256];
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(folder, sizeof folder, "/proc/self/task/%.20s/fd", task->d_name);
        DIR *table = opendir(folder);
        int has = 0;
        for (struct dirent *entry; table && (entry = readdir(table));) {
            snprintf(link, sizeof link, "%s/%s", folder, entry->d_name);
            ssize_t length = readlink(link, name, sizeof name - 1);
            if (length < 0) continue;
            name[length] = 0;
            has |= strstr(name, queue_name) != NULL;
        }
        if (table) closedir(table);
        count += has;
    }
    if (tasks) closedir(tasks);
    return count;
}

static int has_ended(void) {
    close(ends[1]);
    struct pollfd reader = {.fd = ends[0], .events = POLLIN};
    return poll(&reader, 1, 0) == 1 && (reader.revents & POLLHUP);
}

int main(void) {
    char word[32], line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int number = 3; number <= LAST; number++) inherited[number] = fcntl(number, F_GETFD) >= 0;
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long number = 0;
        if (sscanf(line, "%31s %llu", word, &number) < 1) continue;
        if (!strcmp(word, "fill")) {
            int result;
            size_t before = count;
            while (!(result = allocate(number))) {}
            printf("fill %zu %d\n", count - before, result);
            continue;
        }
        if (!strcmp(word, "info")) {
            size_t available = 0, all = 0;
            int result = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&available, &all);
            printf("info %zu %zu %d\n", available, all, result);
            continue;
        }
        int answer = !strcmp(word, "init")     ? begin()
                   : !strcmp(word, "alloc")    ? allocate(number)
                   : !strcmp(word, "free")     ? give_back(number)
                   : !strcmp(word, "cancelled") ? ask_cancelled()
                   : !strcmp(word, "launch")   ? spin(number)
                   : !strcmp(word, "post")     ? post(number)
                   : !strcmp(word, "posted")   ? posted
                   : !strcmp(word, "each")     ? close_each()
                   : !strcmp(word, "range")    ? close_ranges()
                   : !strcmp(word, "reuse")    ? reuse((int)number)
                   : !strcmp(word, "untouched") ? untouched()
                   : !strcmp(word, "table")  ? fill_table()
                   : !strcmp(word, "chroot") ? enter_empty_root()
                   : !strcmp(word, "setuid") ? setresuid((uid_t)number, (uid_t)number, (uid_t)number)
                   : !strcmp(word, "lowest") ? lowest()
                   : !strcmp(word, "queue")   ? open_queue()
                   : !strcmp(word, "notice")  ? ask_for_notice()
                   : !strcmp(word, "unqueue") ? (close(queue) ? errno : 0)
                   : !strcmp(word, "copies")  ? copies()
                   : !strcmp(word, "pipe")    ? (pipe(ends) ? errno : 0)
                   : !strcmp(word, "ended")   ? has_ended()
                                               : 9998;
        printf("%s %d\n", word, answer);
    }
    return 0;
}
