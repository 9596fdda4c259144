/* An NVML that reports the machine's pids to every caller, whatever its namespace, as some drivers
 * do. One device; its processes are the pids in STUB_PIDS, separated by spaces, with a mebibyte
 * each; 0 is the caller. STUB_UUID is the device's, in the form of NVML; without it each is. Each
 * start makes the file STUB_STARTS, if there is one, longer by a byte. Its detailed list has a second version, with
 * longer entries. Accounting is on, and the most memory that a process had is its pid. With STUB_PROTECTED, confidential computing protects 12 GiB, of which 9 are used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, MIB = 1 << 20 };
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long bytes; } entry_v1;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } entry_v2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; unsigned long long protected_bytes; } detail;
typedef struct { detail first; unsigned long long more[8]; } longer;
typedef struct { unsigned version, mode, count; void *entries; } detail_list;
typedef struct { unsigned busy, memory; unsigned long long most, time, start; unsigned runs, rest[5]; } account_v1;
typedef struct { unsigned pid, runs, busy, memory; unsigned long long most, rest[5]; } account_v2;

static int device;

static unsigned pids(unsigned *found, unsigned room) {
    unsigned count = 0;
    char *text = getenv("STUB_PIDS"), *end;
    for (unsigned long pid; text && (pid = strtoul(text, &end, 10)) && end != text; text = end, count++)
        if (count < room) found[count] = pid ? (unsigned)pid : (unsigned)getpid();
    return count;
}

int nvmlInit_v2(void) {
    FILE *starts = getenv("STUB_STARTS") ? fopen(getenv("STUB_STARTS"), "a") : NULL;
    if (starts) fclose((fputc('.', starts), starts));
    return SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { return (void)index, *handle = &device, SUCCESS; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { return (void)uuid, *handle = &device, SUCCESS; }
int nvmlDeviceGetIndex(void *handle, unsigned *index) { return (void)handle, *index = 0, SUCCESS; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    (void)handle;
    return snprintf(text, length, "%s", getenv("STUB_UUID")) < 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    if (!handle || !memory) return 2;
    return *memory = (memory_v1){.total = 16ull << 30, .free = 16ull << 30}, SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    if (memory->version != (sizeof *memory | 2 << 24)) return 25;
    return (void)handle, memory->total = memory->free = 16ull << 30, memory->reserved = memory->used = 0, SUCCESS;
}

int nvmlDeviceGetConfComputeProtectedMemoryUsage(void *handle, memory_v1 *memory) {
    unsigned long long total = getenv("STUB_PROTECTED") ? 12ull << 30 : 0, used = total / 4 * 3;
    return (void)handle, *memory = (memory_v1){.total = total, .free = total - used, .used = used}, SUCCESS;
}

#define LIST(name, entry)                                            \
    int name(void *handle, unsigned *count, entry *entries) {        \
        unsigned found[64], room = *count, all = pids(found, 64);    \
        (void)handle;                                                \
        *count = all;                                                \
        if (room < all) return INSUFFICIENT_SIZE;                    \
        for (unsigned i = 0; i < all; i++) {                         \
            memset(&entries[i], 0, sizeof *entries);                 \
            entries[i].pid = found[i];                               \
            entries[i].bytes = MIB;                                  \
        }                                                            \
        return SUCCESS;                                              \
    }
LIST(nvmlDeviceGetComputeRunningProcesses, entry_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, entry_v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, entry_v2)
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, entry_v2 *entries) {
    return (void)handle, (void)entries, *count = 0, SUCCESS;
}
static LIST(fill_details, detail)
int nvmlDeviceGetAccountingPids(void *handle, unsigned *count, unsigned *list) {
    unsigned found[64], room = *count, all = pids(found, 64);
    (void)handle;
    *count = all;
    if (room < all) return INSUFFICIENT_SIZE;
    memcpy(list, found, all * sizeof *list);
    return SUCCESS;
}
static int accounted(unsigned pid) {
    unsigned found[64], all = pids(found, 64);
    for (unsigned i = 0; i < all; i++)
        if (found[i] == pid) return SUCCESS;
    return NOT_FOUND;
}
int nvmlDeviceGetAccountingStats(void *handle, unsigned pid, account_v1 *stats) {
    if (!stats) return 2;
    return (void)handle, *stats = (account_v1){.most = pid}, accounted(pid);
}
int nvmlDeviceGetAccountingStats_v2(void *handle, account_v2 *stats) {
    if (!stats) return 2;
    return (void)handle, stats->most = stats->pid, accounted(stats->pid);
}
static int fill_longer(unsigned *count, longer *entries) {
    unsigned found[64], room = *count, all = pids(found, 64);
    *count = all;
    if (room < all) return INSUFFICIENT_SIZE;
    memset(entries, 0xff, room * sizeof *entries);
    for (unsigned i = 0; i < all; i++) entries[i].first.pid = found[i];
    return SUCCESS;
}
int nvmlDeviceGetRunningProcessDetailList(void *handle, detail_list *list) {
    if (list->version == (sizeof *list | 2 << 24)) return fill_longer(&list->count, list->entries);
    return list->version != (sizeof *list | 1 << 24) ? 25 : fill_details(handle, &list->count, list->entries);
}
