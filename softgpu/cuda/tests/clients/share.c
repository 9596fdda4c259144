/* Memory shared by two processes. The parent exports it, the child (forked before either uses the driver) imports it. */
#include "cu.h"
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE (2 * MIB)
static int sock;
static pid_t child;

static void give(const void *at, size_t bytes) { TRUE(write(sock, at, bytes) == (ssize_t)bytes); }
static void get(void *at, size_t bytes) { TRUE(read(sock, at, bytes) == (ssize_t)bytes); }
static void tell(void) { give("!", 1); }
static void hear(void) { char byte; get(&byte, 1); }

static void give_fd(int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec iov = { &byte, 1 };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    TRUE(sendmsg(sock, &message, 0) == 1);
}

static int get_fd(void) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec iov = { &byte, 1 };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    TRUE(recvmsg(sock, &message, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* True in the parent. */
static int both(void) {
    int pair[2];
    TRUE(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    child = fork();
    TRUE(child >= 0);
    sock = pair[child ? 0 : 1];
    close(pair[child ? 1 : 0]);
    start();
    return child;
}

static void done(void) {
    int status;
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static dptr mapped(dptr physical, size_t bytes) {
    dptr at;
    struct access access = { { 1, 0 }, 3 };
    DO(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    DO(cuMemMap(at, bytes, 0, physical, 0));
    DO(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

/* Physical memory outlives the exporter's handle and mapping while another process holds it. */
static void physical(void) {
    if (both()) {
        struct alloc_prop prop = { .type = 1, .handles = 1, .location = { 1, 0 } };
        hear(); /* the child has its context */
        size_t before = settled();
        dptr made_, plain;
        int fd;
        unsigned char *in = made(4 * PAGE, 8);
        struct alloc_prop unshared = { .type = 1, .location = { 1, 0 } };
        DO(cuMemCreate(&plain, PAGE, &unshared, 0));
        IS(INVALID_VALUE, cuMemExportToShareableHandle(&fd, plain, 1, 0));
        DO(cuMemRelease(plain));
        DO(cuMemCreate(&made_, 4 * PAGE, &prop, 0));
        dptr at = mapped(made_, 4 * PAGE);
        DO(cuMemcpyHtoD_v2(at, in, 4 * PAGE));
        DO(cuCtxSynchronize());
        DO(cuMemExportToShareableHandle(&fd, made_, 1, 0));
        give_fd(fd);
        close(fd);
        DO(cuMemUnmap(at, 4 * PAGE));
        DO(cuMemRelease(made_));
        TRUE(settled() == before - 4 * PAGE); /* held, or freed and not returned */
        tell();
        hear(); /* the child has changed it */
        TRUE(settled() == before - 4 * PAGE);
        tell();
        done();
        for (int n = 0; n < 64 && settled() != before; n++)
            ;
        TRUE(settled() >= before); /* the child's context is destroyed too */
    } else {
        dptr got;
        unsigned char *out = malloc(4 * PAGE);
        tell();
        int fd = get_fd();
        hear();
        DO(cuMemImportFromShareableHandle(&got, (void *)(intptr_t)fd, 1));
        close(fd);
        IS(INVALID_VALUE, cuMemImportFromShareableHandle(&got, (void *)(intptr_t)0, 1));
        dptr at = mapped(got, 4 * PAGE);
        DO(cuMemRelease(got));
        DO(cuMemcpyDtoH_v2(out, at, 4 * PAGE));
        TRUE(pattern(out, 4 * PAGE, 8));
        tell();
        hear();
        DO(cuMemUnmap(at, 4 * PAGE));
    }
}

static void legacy(void) {
    for (size_t bytes = 1000; bytes < 10 * MIB; bytes *= 5000) {
        if (both()) {
            dptr at, mine;
            struct ipc handle_;
            unsigned char *in = made(bytes, 1), *out = malloc(bytes);
            DO(cuMemAlloc_v2(&at, bytes));
            DO(cuMemcpyHtoD_v2(at, in, bytes));
            DO(cuCtxSynchronize());
            IS(INVALID_VALUE, cuIpcGetMemHandle(&handle_, at + 512));
            DO(cuIpcGetMemHandle(&handle_, at));
            IS(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&mine, handle_, 1));
            give(&handle_, sizeof handle_);
            hear();
            DO(cuMemcpyDtoH_v2(out, at, bytes));
            TRUE(out[0] == 0x55 && pattern(in, bytes, 1));
            done();
            DO(cuMemFree_v2(at));
            /* the driver's state lasts as long as the process: the next size needs a new process */
            exit(bytes > MIB ? 0 : (execl("/proc/self/exe", "share", "legacy_large", (char *)0), 1));
        } else {
            dptr at, again;
            struct ipc handle_;
            unsigned char *out = malloc(bytes);
            get(&handle_, sizeof handle_);
            DO(cuIpcOpenMemHandle_v2(&at, handle_, 1));
            DO(cuIpcOpenMemHandle_v2(&again, handle_, 1));
            TRUE(at == again);
            DO(cuMemcpyDtoH_v2(out, at, bytes));
            TRUE(pattern(out, bytes, 1));
            IS(INVALID_VALUE, cuMemcpyDtoH_v2(out, at, bytes + 1));
            DO(cuMemsetD8_v2(at, 0x55, 1));
            DO(cuCtxSynchronize());
            IS(INVALID_VALUE, cuMemFree_v2(at));
            DO(cuIpcCloseMemHandle(at));
            DO(cuMemcpyDtoH_v2(out, at, 1));
            DO(cuIpcCloseMemHandle(at));
            IS(INVALID_VALUE, cuIpcCloseMemHandle(at));
            tell();
            exit(0);
        }
    }
}

static void legacy_large(void) {
    if (both()) {
        dptr at;
        struct ipc handle_;
        DO(cuMemAlloc_v2(&at, 5 * MIB));
        DO(cuMemsetD8_v2(at, 3, 5 * MIB));
        DO(cuCtxSynchronize());
        DO(cuIpcGetMemHandle(&handle_, at));
        give(&handle_, sizeof handle_);
        done();
    } else {
        dptr at;
        struct ipc handle_;
        unsigned char *out = malloc(5 * MIB);
        get(&handle_, sizeof handle_);
        DO(cuIpcOpenMemHandle_v2(&at, handle_, 1));
        DO(cuMemcpyDtoH_v2(out, at, 5 * MIB));
        TRUE(out[0] == 3 && out[5 * MIB - 1] == 3);
    }
}

static void pool(void) {
    if (both()) {
        struct pool_props props = { .type = 1, .handles = 1, .location = { 1, 0 } };
        handle pool_;
        dptr at;
        struct ipc data;
        int fd;
        unsigned char *in = made(100000, 6), *out = malloc(100000);
        DO(cuMemPoolCreate(&pool_, &props));
        DO(cuMemPoolExportToShareableHandle(&fd, pool_, 1, 0));
        give_fd(fd);
        DO(cuMemAllocFromPoolAsync(&at, 100, pool_, NULL));
        DO(cuMemAllocFromPoolAsync(&at, 100000, pool_, NULL));
        DO(cuMemcpyHtoD_v2(at, in, 100000));
        DO(cuCtxSynchronize());
        DO(cuMemPoolExportPointer(&data, at));
        give(&data, sizeof data);
        hear();
        DO(cuMemcpyDtoH_v2(out, at, 100000));
        TRUE(out[0] == 0x77);
        done();
        DO(cuMemFreeAsync(at, NULL));
        DO(cuCtxSynchronize());
    } else {
        handle pool_;
        dptr at, none;
        struct ipc data;
        unsigned char *out = malloc(100000);
        int fd = get_fd();
        DO(cuMemPoolImportFromShareableHandle(&pool_, (void *)(intptr_t)fd, 1, 0));
        get(&data, sizeof data);
        DO(cuMemPoolImportPointer(&at, pool_, &data));
        IS(INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 100, pool_, NULL));
        DO(cuMemcpyDtoH_v2(out, at, 100000));
        TRUE(pattern(out, 100000, 6));
        DO(cuMemsetD8_v2(at, 0x77, 1));
        DO(cuMemFreeAsync(at, NULL));
        DO(cuCtxSynchronize());
        tell();
    }
}

/* The exporter is killed. Its exported memory lives as long as the process that imported it. */
static void survivor(void) {
    if (both()) {
        dptr got;
        unsigned char *out = malloc(4 * PAGE);
        int status, fd = get_fd();
        size_t before = settled();
        DO(cuMemImportFromShareableHandle(&got, (void *)(intptr_t)fd, 1));
        close(fd);
        kill(child, SIGKILL);
        TRUE(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        dptr at = mapped(got, 4 * PAGE);
        DO(cuMemRelease(got));
        TRUE(settled() > before); /* the child's context is destroyed */
        size_t without = settled();
        DO(cuMemcpyDtoH_v2(out, at, 4 * PAGE));
        TRUE(pattern(out, 4 * PAGE, 8));
        DO(cuMemUnmap(at, 4 * PAGE));
        TRUE(settled() == without + 4 * PAGE);
    } else {
        struct alloc_prop prop = { .type = 1, .handles = 1, .location = { 1, 0 } };
        dptr made_;
        int fd;
        DO(cuMemCreate(&made_, 4 * PAGE, &prop, 0));
        dptr at = mapped(made_, 4 * PAGE);
        DO(cuMemcpyHtoD_v2(at, made(4 * PAGE, 8), 4 * PAGE));
        DO(cuCtxSynchronize());
        DO(cuMemExportToShareableHandle(&fd, made_, 1, 0));
        give_fd(fd);
        pause();
    }
}

/* A namespace of its own for the pids of the children; 0 if this system lets us make none. */
static int own_pids(void) {
    char map[32];
    int uid = (int)getuid();
    if (!unshare(CLONE_NEWPID)) return 1;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 0;
    FILE *file = fopen("/proc/self/uid_map", "w");
    snprintf(map, sizeof map, "%d %d 1", uid, uid);
    return file && fputs(map, file) >= 0 && !fclose(file);
}

/* Exports an allocation and a pool's, both full of `value`, as process 1 of a namespace. */
static void exports(int to, unsigned char value) {
    struct pool_props props = { .type = 1, .handles = 1, .location = { 1, 0 } };
    struct ipc handles[2];
    dptr at;
    handle pool_;
    int fd;
    sock = to;
    start();
    DO(cuMemAlloc_v2(&at, 4096));
    DO(cuMemsetD8_v2(at, value, 4096));
    DO(cuIpcGetMemHandle(&handles[0], at));
    DO(cuMemPoolCreate(&pool_, &props));
    DO(cuMemAllocFromPoolAsync(&at, 4096, pool_, NULL));
    DO(cuMemsetD8Async(at, value, 4096, NULL));
    DO(cuCtxSynchronize());
    DO(cuMemPoolExportPointer(&handles[1], at));
    DO(cuMemPoolExportToShareableHandle(&fd, pool_, 1, 0));
    handle event, opened;
    struct ipc mine, other;
    DO(cuEventCreate(&event, 2 | 4));
    DO(cuIpcGetEventHandle(&mine, event));
    give(handles, sizeof handles);
    give_fd(fd);
    give(&mine, sizeof mine);
    get(&other, sizeof other);
    /* An event of this process is no other's: the one of its pid in another namespace is. */
    IS(memcmp(&mine, &other, sizeof mine) ? OK : INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, other));
    IS(INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, mine));
    tell();
    hear();
}

/* Two exporters that have the same pid, each in its namespace, and run the same program. */
static void namespaces(void) {
    enum { EXPORTERS = 2 };
    int socks[EXPORTERS], status;
    pid_t children[EXPORTERS];
    dptr at[EXPORTERS], in_pool[EXPORTERS], none;
    struct ipc handles[EXPORTERS][2], events[EXPORTERS];
    handle pools[EXPORTERS];
    for (int n = 0; n < EXPORTERS; n++) {
        int pair[2];
        TRUE(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        socks[n] = pair[0];
        children[n] = fork();
        TRUE(children[n] >= 0);
        if (children[n]) {
            close(pair[1]);
            continue;
        }
        close(pair[0]);
        if (!own_pids()) exit(77);
        pid_t first = fork();
        if (!first) {
            TRUE(getpid() == 1);
            exports(pair[1], (unsigned char)(n + 1));
            exit(0);
        }
        TRUE(waitpid(first, &status, 0) == first);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    start();
    for (int n = 0; n < EXPORTERS; n++) {
        unsigned char seen[2] = { 0, 0 };
        sock = socks[n];
        if (read(sock, handles[n], sizeof handles[n]) != sizeof handles[n]) {
            TRUE(waitpid(children[n], &status, 0) == children[n] && WIFEXITED(status) && WEXITSTATUS(status) == 77);
            printf("skipped: no namespace of pids can be made here\n");
            return;
        }
        int fd = get_fd();
        get(&events[n], sizeof events[n]);
        DO(cuIpcOpenMemHandle_v2(&at[n], handles[n][0], 1));
        DO(cuMemPoolImportFromShareableHandle(&pools[n], (void *)(intptr_t)fd, 1, 0));
        DO(cuMemPoolImportPointer(&in_pool[n], pools[n], &handles[n][1]));
        DO(cuMemcpyDtoH_v2(&seen[0], at[n], 1));
        DO(cuMemcpyDtoH_v2(&seen[1], in_pool[n], 1));
        TRUE(seen[0] == n + 1 && seen[1] == n + 1);
    }
    IS(INVALID_VALUE, cuMemPoolImportPointer(&none, pools[0], &handles[1][1]));
    for (int n = 0; n < EXPORTERS; n++) {
        sock = socks[n];
        give(&events[0], sizeof events[0]);
        hear();
        tell();
        TRUE(waitpid(children[n], &status, 0) == children[n] && WIFEXITED(status) && !WEXITSTATUS(status));
    }
}

TESTS(T(survivor), T(physical), T(legacy), T(legacy_large), T(pool), T(namespaces))
