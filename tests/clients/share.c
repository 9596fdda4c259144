/* A program that shares memory, chooses devices and makes mistakes, driven line by line. It knows
 * nothing of gpushare.
 *
 *   init DEVICE           -> init RESULT               cuInit and the device's primary context
 *   alloc BYTES           -> alloc RESULT
 *   free                  -> free RESULT               the most recent allocation
 *   export                -> export RESULT HANDLE      of the most recent allocation, as hexadecimal
 *   open HANDLE           -> open RESULT
 *   close                 -> close RESULT              what was opened
 *   create DEVICE BYTES   -> create RESULT             physical memory on that device, whatever the context
 *   release               -> release RESULT            of the most recent physical memory
 *   info                  -> info FREE                 cuMemGetInfo
 *   mistakes              -> mistakes RESULT...        calls no driver accepts
 *
 * RESULT is the CUresult as a number. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long dptr;
struct ipc { unsigned char bytes[64]; };
struct prop { int type, handle_types, location_type, device; void *win32; unsigned char flags[8]; };
struct array { size_t width, height; int format; unsigned channels; };

static void *driver;
static dptr live[64], opened;
static uint64_t physical[64];
static int count, created;

#define CALL(name, types, arguments) ((int(*) types)function(name)) arguments

static void *function(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(2);
    return found;
}

static int start(int device) {
    void *context;
    int result = CALL("cuInit", (unsigned), (0));
    if (!result) result = CALL("cuDevicePrimaryCtxRetain", (void **, int), (&context, device));
    return result ? result : CALL("cuCtxSetCurrent", (void *), (context));
}

static int create(int device, size_t bytes) {
    struct prop prop = {.type = 1, .location_type = 1, .device = device};
    int result = CALL("cuMemCreate", (uint64_t *, size_t, struct prop *, unsigned long long), (&physical[created], bytes, &prop, 0));
    created += !result;
    return result;
}

static void export(void) {
    struct ipc handle;
    memset(&handle, 0, sizeof handle);
    printf("export %d ", CALL("cuIpcGetMemHandle", (struct ipc *, dptr), (&handle, live[count - 1])));
    for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle.bytes[i]);
    printf("\n");
}

static int open_handle(const char *text) {
    struct ipc handle;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.bytes[i] = (unsigned char)byte;
    }
    return CALL("cuIpcOpenMemHandle_v2", (dptr *, struct ipc, unsigned), (&opened, handle, 1));
}

static void mistakes(void) {
    typedef unsigned long long ull;
    dptr at;
    size_t bytes, pitch;
    uint64_t handle;
    void *object;
    struct ipc nonsense;
    struct prop nowhere = {.type = 1, .location_type = 1, .device = 99}, here = {.type = 1, .location_type = 1};
    struct array empty = {0, 0, 0x20, 1}, odd = {16, 16, 0x20, 3};
    memset(&nonsense, 0xa5, sizeof nonsense);
    int results[] = {
        CALL("cuMemAlloc_v2", (dptr *, size_t), (NULL, 512)),
        CALL("cuMemAlloc_v2", (dptr *, size_t), (&at, 0)),
        CALL("cuMemAlloc_v2", (dptr *, size_t), (&at, (size_t)-1)),
        CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned), (NULL, &pitch, 64, 64, 4)),
        CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned), (&at, NULL, 64, 64, 4)),
        CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned), (&at, &pitch, 64, 64, 3)),
        CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned), (&at, &pitch, 0, 64, 4)),
        CALL("cuMemAllocManaged", (dptr *, size_t, unsigned), (NULL, 512, 1)),
        CALL("cuMemAllocManaged", (dptr *, size_t, unsigned), (&at, 512, 77)),
        CALL("cuMemFree_v2", (dptr), (0)),
        CALL("cuMemFree_v2", (dptr), (0x12345)),
        CALL("cuMemFree_v2", (dptr), (~0ull)),
        CALL("cuMemCreate", (uint64_t *, size_t, struct prop *, ull), (NULL, 2 << 20, &here, 0)),
        CALL("cuMemCreate", (uint64_t *, size_t, struct prop *, ull), (&handle, 2 << 20, NULL, 0)),
        CALL("cuMemCreate", (uint64_t *, size_t, struct prop *, ull), (&handle, 1, &here, 0)),
        CALL("cuMemCreate", (uint64_t *, size_t, struct prop *, ull), (&handle, 2 << 20, &nowhere, 0)),
        CALL("cuMemRelease", (uint64_t), (77)),
        CALL("cuMemMap", (dptr, size_t, size_t, uint64_t, ull), (2 << 20, 2 << 20, 0, 77, 0)),
        CALL("cuMemUnmap", (dptr, size_t), (2 << 20, 2 << 20)),
        CALL("cuMemRetainAllocationHandle", (uint64_t *, void *), (&handle, &handle)),
        CALL("cuArrayCreate_v2", (void **, struct array *), (NULL, &odd)),
        CALL("cuArrayCreate_v2", (void **, struct array *), (&object, NULL)),
        CALL("cuArrayCreate_v2", (void **, struct array *), (&object, &empty)),
        CALL("cuArrayCreate_v2", (void **, struct array *), (&object, &odd)),
        CALL("cuArrayDestroy", (void *), (NULL)),
        CALL("cuMipmappedArrayDestroy", (void *), (NULL)),
        CALL("cuMemGetInfo_v2", (size_t *, size_t *), (NULL, NULL)),
        CALL("cuMemGetInfo_v2", (size_t *, size_t *), (&bytes, NULL)),
        CALL("cuDeviceTotalMem_v2", (size_t *, int), (NULL, 0)),
        CALL("cuDeviceTotalMem_v2", (size_t *, int), (&bytes, 99)),
        CALL("cuIpcOpenMemHandle_v2", (dptr *, struct ipc, unsigned), (&at, nonsense, 1)),
        CALL("cuIpcGetMemHandle", (struct ipc *, dptr), (&nonsense, 0x12345)),
        CALL("cuIpcCloseMemHandle", (dptr), (0x12345)),
        CALL("cuMemFreeAsync", (dptr, void *), (0x12345, NULL)),
        CALL("cuMemAllocAsync", (dptr *, size_t, void *), (NULL, 512, NULL)),
    };
    printf("mistakes");
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) printf(" %d", results[i]);
    printf("\n");
}

int main(void) {
    char line[256], word[16], text[192];
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long first = 0, second = 0;
        text[0] = 0;
        if (sscanf(line, "%15s %191s", word, text) < 1) continue;
        sscanf(line, "%*s %llu %llu", &first, &second);
        if (!strcmp(word, "init")) printf("init %d\n", start((int)first));
        else if (!strcmp(word, "alloc")) {
            int result = CALL("cuMemAlloc_v2", (dptr *, size_t), (&live[count], first));
            count += !result;
            printf("alloc %d\n", result);
        } else if (!strcmp(word, "free")) printf("free %d\n", CALL("cuMemFree_v2", (dptr), (live[--count])));
        else if (!strcmp(word, "export")) export();
        else if (!strcmp(word, "open")) printf("open %d\n", open_handle(text));
        else if (!strcmp(word, "close")) printf("close %d\n", CALL("cuIpcCloseMemHandle", (dptr), (opened)));
        else if (!strcmp(word, "create")) printf("create %d\n", create((int)first, second));
        else if (!strcmp(word, "release")) printf("release %d\n", CALL("cuMemRelease", (uint64_t), (physical[--created])));
        else if (!strcmp(word, "info")) {
            size_t available = 0, all = 0;
            CALL("cuMemGetInfo_v2", (size_t *, size_t *), (&available, &all));
            printf("info %zu\n", available);
        } else if (!strcmp(word, "mistakes")) mistakes();
    }
    return 0;
}
