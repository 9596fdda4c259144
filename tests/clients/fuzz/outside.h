/* Memory of other processes, what NVML says, and how functions are found. */
static int ipc_handle(struct thread *t) {
    char handle[64] = {0};
    return CALL("cuIpcGetMemHandle", (void *, dptr))(handle, t->buffer[USED(t, buffer)]);
}
static int ipc_close(struct thread *t) { return CALL("cuIpcCloseMemHandle", (dptr))(below(t, 2) ? 4096 : 0); }
static int monitor(struct thread *t) {
    static const char *const names[] = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v3"};
    unsigned which = below(t, 2), count = 16;
    void *device = NULL;
    char space[4096];
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int result = by_index(rarely(t) ? 99 : 0, &device);
    void *function = dlsym(nvml, names[which]);
    if (!result) result = which ? ((int (*)(void *, unsigned *, void *))function)(device, &count, space)
                                : ((int (*)(void *, void *))function)(device, space);
    return result ? 2000 + result : 0; /* Not to be taken for the driver's. */
}

/* The other process of a run (`fuzz peer`): what it gave away. */
static struct { int result; char handle[2][64]; int file; } peer = {-1, {{0}}, -1};

static int peer_open(struct thread *t) {
    unsigned to = UNUSED(t, imported), which = below(t, 2);
    unsigned char bytes[64] = {0};
    char handle[64];
    dptr at = 0;
    struct handle64 { char bytes[64]; } value;
    if (t->imported[to]) return EMPTY;
    memcpy(handle, peer.handle[which], 64);
    if (rarely(t)) memset(handle, 1, 64);
    memcpy(&value, handle, 64);
    int result = CALL("cuIpcOpenMemHandle_v2", (dptr *, struct handle64, unsigned))(&at, value, rarely(t) ? 9 : 1);
    if (result) return result;
    t->imported[to] = (void *)(uintptr_t)at;
    int read = CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(bytes, at + 4096, sizeof bytes);
    snprintf(t->extra, sizeof t->extra, "%d %016llx", read, (dptr)hash(bytes, sizeof bytes));
    return result;
}
static int peer_close(struct thread *t) {
    unsigned of = USED(t, imported);
    dptr at = (dptr)(uintptr_t)t->imported[of];
    int result = CALL("cuIpcCloseMemHandle", (dptr))(at);
    for (int i = 0; i < SLOTS && !result; i++)
        if (at && (dptr)(uintptr_t)t->imported[i] == at) t->imported[i] = NULL;
    return result;
}
static int peer_map(struct thread *t) {
    struct access access = {{1, 0}, 3};
    unsigned long long handle = 0;
    dptr range = 0;
    unsigned char bytes[64] = {0};
    int file = rarely(t) ? 0 : peer.file;
    int result = CALL("cuMemImportFromShareableHandle", (unsigned long long *, void *, int))(&handle, (void *)(uintptr_t)file, 1);
    if (result) return result;
    must(CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, u64))(&range, 2 * MIB, 0, 0, 0), "cuMemAddressReserve");
    int mapped = CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, u64))(range, 2 * MIB, 0, handle, 0);
    int seen = CALL("cuMemSetAccess", (dptr, size_t, const struct access *, size_t))(range, 2 * MIB, &access, 1);
    int read = CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(bytes, range, sizeof bytes);
    int unmapped = CALL("cuMemUnmap", (dptr, size_t))(range, 2 * MIB), released = CALL("cuMemRelease", (unsigned long long))(handle);
    CALL("cuMemAddressFree", (dptr, size_t))(range, 2 * MIB);
    snprintf(t->extra, sizeof t->extra, "%d %d %d %d %d %016llx", mapped, seen, read, unmapped, released, (dptr)hash(bytes, sizeof bytes));
    return result;
}
static int ipc_event(struct thread *t) {
    char handle[64] = {0};
    return CALL("cuIpcGetEventHandle", (void *, void *))(handle, some(t, t->event));
}

/* The other process: two buffers and physical memory for as long as its socket is open. */
static int be_peer(int socket) {
    struct prop prop = {1, 1, {1, 0}, NULL, {0}};
    struct access access = {{1, 0}, 3};
    unsigned long long handle = 0;
    dptr at[2] = {0}, range = 0;
    char byte, control[CMSG_SPACE(sizeof(int))] = {0};
    int result = CALL("cuInit", (unsigned))(0);
    if (!result) result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&primary, 0);
    if (!result) result = CALL("cuCtxSetCurrent", (void *))(primary);
    for (int i = 0; i < 2 && !result; i++) {
        result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at[i], 2 * MIB);
        if (!result) result = CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(at[i], 11 + i, 2 * MIB);
        /* Memory that moves has none; then it stays zero. */
        if (!result) CALL("cuIpcGetMemHandle", (void *, dptr))(peer.handle[i], at[i]);
    }
    if (!result) result = CALL("cuMemCreate", (unsigned long long *, size_t, const struct prop *, u64))(&handle, 2 * MIB, &prop, 0);
    if (!result) result = CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, u64))(&range, 2 * MIB, 0, 0, 0);
    if (!result) result = CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, u64))(range, 2 * MIB, 0, handle, 0);
    if (!result) result = CALL("cuMemSetAccess", (dptr, size_t, const struct access *, size_t))(range, 2 * MIB, &access, 1);
    if (!result) result = CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(range, 13, 2 * MIB);
    if (!result) result = CALL("cuMemExportToShareableHandle", (void *, unsigned long long, int, u64))(&peer.file, handle, 1, 0);
    if (!result) result = CALL("cuCtxSynchronize", (void))();
    peer.result = result;
    struct iovec data = {&peer, sizeof peer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (result) message.msg_control = NULL, message.msg_controllen = 0;
    else {
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &peer.file, sizeof(int));
    }
    if (sendmsg(socket, &message, 0) < 0) return 2;
    return read(socket, &byte, 1) != 0;
}

/* Starts it, from this program's own file; its socket is closed with this process. */
static int start_peer(pid_t *child) {
    int ends[2];
    char number[16], control[CMSG_SPACE(sizeof(int))];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    *child = fork();
    if (!*child) {
        int own = dup(ends[1]);
        fclose(stdout); /* A reader of this program's output waits for it only. */
        snprintf(number, sizeof number, "%d", own);
        execl("/proc/self/exe", "fuzz", "peer", number, NULL);
        _exit(127);
    }
    close(ends[1]);
    struct iovec data = {&peer, sizeof peer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(ends[0], &message, MSG_WAITALL) != sizeof peer) exit(2);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    peer.file = -1;
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&peer.file, CMSG_DATA(header), sizeof(int));
    return ends[0];
}

/* Functions of NVML that fill one place, and the driver's by name, version and flags. */
static int monitor_more(struct thread *t) {
    static const char *const names[] = {
        "nvmlDeviceGetName", "nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetNumFans", "nvmlDeviceGetBrand", "nvmlDeviceGetBoardId", "nvmlDeviceGetMemoryBusWidth"};
    char space[4096] = {0};
    unsigned which = below(t, sizeof names / sizeof *names), sized = !strcmp(names[which], "nvmlDeviceGetName");
    void *device = NULL, *function = dlsym(nvml, names[which]);
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int result = by_index(0, &device), wrong = rarely(t);
    if (!function) return 1000;
    if (wrong) device = NULL;
    if (!result) result = sized ? ((int (*)(void *, char *, unsigned))function)(device, space, below(t, 96)) : ((int (*)(void *, void *))function)(device, space);
    return result ? 2000 + result : 0;
}
static int monitor_self(struct thread *t) {
    struct { unsigned pid, pad; u64 used; unsigned instance, compute; } rows[64];
    unsigned count = 64, found = 0;
    void *device = NULL, *function = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    int result = ((int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    if (!result) result = ((int (*)(void *, unsigned *, void *))function)(device, &count, rows);
    for (unsigned i = 0; i < count && !result; i++) found += rows[i].pid == (unsigned)getpid();
    snprintf(t->extra, sizeof t->extra, "%u", found);
    return result ? 2000 + result : 0;
}
static int monitor_again(struct thread *t) {
    int init = ((int (*)(void))dlsym(nvml, "nvmlInit_v2"))(), result = ((int (*)(void))dlsym(nvml, "nvmlShutdown"))();
    snprintf(t->extra, sizeof t->extra, "%d", init);
    return result ? 2000 + result : 0;
}
static int look_up(struct thread *t) {
    static const char *const names[] = {"cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuMemAllocAsync", "cuGraphInstantiate", "cuStreamGetCaptureInfo",
        "cuCtxCreate", "cuGetProcAddress", "cuMemcpyHtoD", "cuNothing", "cuEventElapsedTime", "cuGraphLaunch", "cuMemPrefetchAsync", "cuInit",
        "cuStreamBeginCapture", "cuDevicePrimaryCtxRelease", "cuMemGetInfo", "cuDeviceGetUuid", "cuGraphExecUpdate", "cuGreenCtxCreate", "", "cuMemCreate"};
    static const int versions[] = {2000, 3020, 4000, 7000, 10000, 11020, 11030, 12000, 12080, 99999, 0};
    const char *name = names[below(t, sizeof names / sizeof *names)];
    int version = versions[below(t, 11)], status = 9;
    u64 flags = rarely(t) ? 4 : below(t, 3);
    void *found = NULL, *old = NULL;
    int result = CALL("cuGetProcAddress_v2", (const char *, void **, int, u64, int *))(name, &found, version, flags, &status);
    int before = CALL("cuGetProcAddress", (const char *, void **, int, u64))(name, &old, version, flags);
    snprintf(t->extra, sizeof t->extra, "%s %d %d %d %d %d", name, version, found != NULL, status, before, old == found);
    return result;
}
