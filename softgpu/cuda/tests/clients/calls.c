// Initialises the driver named by the first argument, prints its version and devices, then allocates and frees 512 bytes as often
// as the second argument says, and prints each result.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define CU(name, ...) (((int (*)())dlsym(lib, #name))(__VA_ARGS__))

int main(int argc, char **argv) {
    void *lib = dlopen(argv[1], RTLD_NOW), *context = NULL;
    int rounds = argc > 2 ? atoi(argv[2]) : 0, count = 0, version = 0;
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
    printf("init %d\n", CU(cuInit, 0));
    CU(cuDriverGetVersion, &version);
    printf("version %d\n", version);
    if (CU(cuDeviceGetCount, &count)) return 0;
    for (int i = 0; i < count; i++) {
        char id[64];
        unsigned char uuid[16];
        CU(cuDeviceGetPCIBusId, id, 64, i);
        CU(cuDeviceGetUuid, uuid, i);
        printf("device %s GPU-", id);
        for (int b = 0; b < 16; b++) printf(b == 4 || b == 6 || b == 8 || b == 10 ? "-%02x" : "%02x", uuid[b]);
        printf("\n");
    }
    if (!rounds) return 0;
    printf("retain %d\n", CU(cuDevicePrimaryCtxRetain, &context, 0));
    CU(cuCtxSetCurrent, context);
    for (int i = 0; i < rounds; i++) {
        unsigned long long at = 0;
        int allocated = CU(cuMemAlloc_v2, &at, (size_t)512);
        printf("alloc %d free %d\n", allocated, CU(cuMemFree_v2, at));
    }
    return 0;
}
