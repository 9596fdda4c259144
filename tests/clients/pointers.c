/* Pointers that no program should give, and what the driver says of them. It knows nothing of
 * gpushare.
 *
 *   usage: pointers null|odd
 *
 * null: calls that a null pointer, or a null handle, makes wrong before the driver looks behind
 * another pointer, which leads nowhere. odd: places for answers that are not aligned. Prints a line
 * for each: the function, and the CUresult as a number. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 2 << 20 };

static void *driver, *context;
static void *const nowhere = (void *)16;
static char bytes[64];

static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(3);
    return found;
}

#define CALL(name, types, ...) printf(#name " %d\n", ((int (*)types)find(#name))(__VA_ARGS__))

static void null_before_nowhere(void) {
    void *found;
    CALL(cuMemCreate, (void *, size_t, void *, unsigned long long), NULL, CHUNK, nowhere, 0);
    CALL(cuMemCreate, (void *, size_t, void *, unsigned long long), NULL, 0, nowhere, 0);
    CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, void *), NULL, &found, 12000, 0, nowhere);
    CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, void *), "cuInit", NULL, 12000, 0, nowhere);
}

/* A place that no type of more than a byte may lie at. */
static void *odd(int at) { return bytes + 8 * at + 1; }

static void odd_places(void) {
    uint64_t address;
    CALL(cuMemAlloc_v2, (void *, size_t), odd(0), CHUNK);
    memcpy(&address, odd(0), 8);
    CALL(cuMemFree_v2, (uint64_t), address);
    CALL(cuMemAllocManaged, (void *, size_t, unsigned), odd(0), CHUNK, 1);
    memcpy(&address, odd(0), 8);
    CALL(cuMemFree_v2, (uint64_t), address);
    CALL(cuMemAllocPitch_v2, (void *, void *, size_t, size_t, unsigned), odd(0), odd(1), 100, 100, 4);
    memcpy(&address, odd(0), 8);
    CALL(cuMemFree_v2, (uint64_t), address);
    CALL(cuMemGetInfo_v2, (void *, void *), odd(0), odd(1));
    CALL(cuStreamCreate, (void *, unsigned), odd(0), 1);
    CALL(cuEventCreate, (void *, unsigned), odd(1), 0);
    CALL(cuDevicePrimaryCtxRetain, (void *, int), odd(2), 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || ((int (*)(unsigned))find("cuInit"))(0)) return 4;
    if (((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0)) return 5;
    if (((int (*)(void *))find("cuCtxSetCurrent"))(context)) return 6;
    (!strcmp(argv[1], "odd") ? odd_places : null_before_nowhere)();
    return 0;
}
