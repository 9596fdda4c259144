/* An NVML of two GPUs: the first in MIG mode with instances at two of its seven indices, the second
 * not. Only the functions that the daemon calls. A process, whose pid STUB_PID names, holds 1 GiB
 * on the first instance. Built as libnvidia-ml.so.1; with -DOLD as R470 has it, with -DLOST after
 * the first GPU fell off the bus, with -DDIVIDED with two compute instances of one GPU instance beside
 * one of another; with -DUNIFIED=1 the second GPU has no memory of its own, with -DUNIFIED=2 no
 * device has; with -DBARE=1 the first GPU has no instance, with -DBARE=2 both are in MIG mode and
 * have none; with -DCOUNTED=0 it counts no GPU. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct device { const char *uuid, *name; uint64_t total, reserved; } *handle;
typedef struct { uint32_t pid; unsigned long long used; uint32_t gpu_instance, compute_instance; } process;
typedef struct { uint32_t version; unsigned long long total, reserved, free, used; } memory;

static struct device devices[] = {
    {"GPU-00000000-0000-0000-0000-0000000000aa", "Stub 80GB", 80ull << 30, 1ull << 30},
    {"GPU-00000000-0000-0000-0000-0000000000bb", "Stub 80GB", 80ull << 30, 1ull << 30},
    {"MIG-11111111-1111-1111-1111-111111111111", "Stub 80GB MIG 1g.10gb", 10ull << 30, 1ull << 30},
    {"MIG-22222222-2222-2222-2222-222222222222", "Stub 80GB MIG 3g.40gb", 40ull << 30, 0},
    {"MIG-33333333-3333-3333-3333-333333333333", "Stub 80GB MIG 1c.1g.10gb", 10ull << 30, 1ull << 30},
};
#ifndef COUNTED
#define COUNTED 2
#endif
#ifndef BARE
#define BARE 0
#endif
enum { GPUS = 2, ALL = 5, MOST_INSTANCES = 7 };

static unsigned long long used_on(handle device) {
    return device == &devices[2] && getenv("STUB_PID") ? 1ull << 30 : 0;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code ? "failed" : "fine"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = COUNTED, SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    if (index >= GPUS) return INVALID_ARGUMENT;
#ifdef LOST
    if (index == 0) return GPU_IS_LOST;
#endif
    return *out = &devices[index], SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out) {
    for (int i = 0; i < ALL; i++) {
        if (!strcmp(uuid, devices[i].uuid)) return *out = &devices[i], SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(handle device, char *text, unsigned size) {
    return (unsigned)snprintf(text, size, "%s", device->uuid) < size ? SUCCESS : INSUFFICIENT_SIZE;
}

/* The driver's order is not NVML's, and an instance has no file of its own. */
int nvmlDeviceGetMinorNumber(handle device, unsigned *minor) {
    if (device >= &devices[GPUS]) return NOT_SUPPORTED;
    return *minor = device == &devices[0] ? 1 : 0, SUCCESS;
}

int nvmlDeviceGetName(handle device, char *text, unsigned size) {
    return (unsigned)snprintf(text, size, "%s", device->name) < size ? SUCCESS : INSUFFICIENT_SIZE;
}

static int has_memory(handle device) {
#ifdef UNIFIED
    return UNIFIED != 2 && device != &devices[1];
#else
    return device != 0;
#endif
}

#ifdef OLD
typedef struct { unsigned long long total, free, used; } first_memory;

int nvmlDeviceGetMemoryInfo(handle device, first_memory *out) {
    if (!has_memory(device)) return NOT_SUPPORTED;
    *out = (first_memory){device->total, device->total - device->reserved - used_on(device), device->reserved + used_on(device)};
    return SUCCESS;
}
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v2
#define GRAPHICS nvmlDeviceGetGraphicsRunningProcesses_v2
#else
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v3
#define GRAPHICS nvmlDeviceGetGraphicsRunningProcesses_v3
int nvmlDeviceGetMemoryInfo_v2(handle device, memory *out) {
    if (!has_memory(device)) return NOT_SUPPORTED;
    out->total = device->total;
    out->reserved = device->reserved;
    out->used = used_on(device);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}
#endif

int COMPUTE(handle device, unsigned *count, process *out) {
    if (!used_on(device)) return *count = 0, SUCCESS;
    if (*count < 1 || !out) return *count = 1, INSUFFICIENT_SIZE;
    *out = (process){(uint32_t)atoi(getenv("STUB_PID")), used_on(device), 7, 0};
    return *count = 1, SUCCESS;
}

int GRAPHICS(handle device, unsigned *count, process *out) {
    (void)device, (void)out;
    return *count = 0, SUCCESS;
}

int nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
    if (device != &devices[0] && BARE != 2) return NOT_SUPPORTED;
    return *current = *pending = 1, SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
    return *count = device == &devices[0] || BARE == 2 ? MOST_INSTANCES : 0, SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *out) {
    if (index >= MOST_INSTANCES) return INVALID_ARGUMENT;
    if (BARE) return NOT_FOUND;
    if (device != &devices[0]) return INVALID_ARGUMENT;
#ifdef DIVIDED
    if (index == 1) return *out = &devices[4], SUCCESS;
#endif
    if (index != 0 && index != 5) return NOT_FOUND;
    return *out = &devices[index ? 3 : 2], SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(handle device, unsigned *id) {
    if (device < &devices[GPUS]) return NOT_SUPPORTED;
    return *id = device == &devices[3] ? 2 : 1, SUCCESS;
}
