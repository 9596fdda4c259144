/* What a CUDA driver program sees of an allocation of 8 MiB: attributes, range, handles for other processes. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/driver.h"

typedef unsigned long long dptr;

int main(void) {
    int device, value;
    void *context, *own;
    dptr at, base, other;
    size_t size;
    char handle[64];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    if (CALL("cuInit", (unsigned))(0) || CALL("cuDeviceGet", (int *, int))(&device, 0)) return 4;
    if (CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device)) return 4;
    if (CALL("cuCtxSetCurrent", (void *))(context)) return 4;
    if (CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, (8 << 20) - 100)) return 5;
    int (*ask)(void *, int, dptr) = (int (*)(void *, int, dptr))symbol("cuPointerGetAttribute");
    value = 77;
    printf("type %d", ask(&value, 2, at + 5));
    printf(" %d\n", value);
    value = 77;
    printf("is managed %d", ask(&value, 8, at + 5) ? -1 : value);
    printf("\n");
    value = 77;
    ask(&value, 10, at);
    printf("ipc capable %d\n", value);
    own = NULL;
    printf("context %d", ask(&own, 1, at));
    printf(" %d\n", own == context);
    printf("host pointer %d\n", ask(&other, 4, at));
    other = 0;
    printf("device pointer %d", ask(&other, 3, at + 7));
    printf(" %d\n", other == at + 7);
    printf("start %d", ask(&other, 11, at + 7));
    printf(" %d\n", other == at);
    size = 0;
    printf("size %d", ask(&size, 12, at));
    printf(" %zu\n", size);
    value = 77;
    printf("ordinal %d", ask(&value, 9, at));
    printf(" %d\n", value);
    printf("range %d", CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&base, &size, at + (4 << 20)));
    printf(" %d %zu\n", base == at, size);
    unsigned managed = 7, type = 7;
    dptr host = 7;
    int list[] = {8, 2, 4};
    void *places[] = {&managed, &type, &host};
    printf("list %d", CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(3, list, places, at));
    printf(" %u %u %llu\n", managed, type, host);
    printf("ipc %d\n", CALL("cuIpcGetMemHandle", (void *, dptr))(handle, at));
    printf("free inside %d\n", CALL("cuMemFree_v2", (dptr))(at + 512));
    printf("free %d\n", CALL("cuMemFree_v2", (dptr))(at));
    printf("free again %d\n", CALL("cuMemFree_v2", (dptr))(at));
    return 0;
}
