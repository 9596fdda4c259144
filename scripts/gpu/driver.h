/* The few driver functions the programs in this folder use, looked up by name as most programs do, and a kernel that does
 * nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long dptr;

static inline void *driver_symbol(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return found;
}

/* CU(name, (types), (arguments)) looks a function up and calls it, and ends the program with the number of any error. */
#define CU(name, types, arguments)                              \
    do {                                                        \
        int result = ((int(*) types)driver_symbol(name)) arguments; \
        if (result) {                                           \
            fprintf(stderr, "%s: CUDA error %d\n", name, result); \
            exit(1);                                            \
        }                                                       \
    } while (0)

/* Compiled by the driver for whatever GPU it finds. scripts/kernels.sh assembles it without one. */
__attribute__((unused)) static const char nothing_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static inline void *make_context(void) {
    int device;
    void *context;
    CU("cuInit", (unsigned), (0));
    CU("cuDeviceGet", (int *, int), (&device, 0));
    CU("cuDevicePrimaryCtxRetain", (void **, int), (&context, device));
    CU("cuCtxSetCurrent", (void *), (context));
    return context;
}
