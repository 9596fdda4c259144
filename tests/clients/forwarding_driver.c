/* A driver that is none: it opens another file, by the path in FORWARD_TO, and passes each call on to
 * that, as libcuda.so.1 does under WSL. It finds the functions there inside cuInit, as FORWARD_BY
 * says: by the file's `handle`, by the program's order of libraries (`default`), or by the file's
 * cuGetProcAddress (`proc`). Built as libcuda.so.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                                             \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceTotalMem_v2)                      \
    X(cuDeviceGetAttribute) X(cuDeviceGetUuid) X(cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxRetain)                   \
    X(cuDevicePrimaryCtxGetState) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuCtxGetId)            \
    X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2)                      \
    X(cuGetProcAddress_v2)

typedef long word;
typedef int function(word, word, word, word, word, word);

#define PLACE(name) static function *to_##name;
FUNCTIONS(PLACE)

static void *file;

static void *found(const char *name) {
    const char *by = getenv("FORWARD_BY");
    if (!strcmp(by, "handle")) return dlsym(file, name);
    if (!strcmp(by, "default")) return dlsym(RTLD_DEFAULT, name);
    int (*ask)(const char *, void **, int, uint64_t, int *) = dlsym(file, "cuGetProcAddress_v2");
    char base[64];
    void *answer = NULL;
    strncpy(base, name, sizeof base - 1);
    base[sizeof base - 1] = 0;
    if (strstr(base, "_v2")) *strstr(base, "_v2") = 0;
    return ask(base, &answer, 12000, 0, NULL) ? NULL : answer;
}

static int look(void) {
    if (file) return 0;
    file = dlopen(getenv("FORWARD_TO"), RTLD_NOW | RTLD_GLOBAL);
    if (!file) return 999;
#define FIND(name) to_##name = (function *)found(#name);
    FUNCTIONS(FIND)
    return 0;
}

#define FORWARD(name)                                                    \
    int name(word a, word b, word c, word d, word e, word f) {           \
        if (look() || !to_##name) return 500;                            \
        return to_##name(a, b, c, d, e, f);                              \
    }
FUNCTIONS(FORWARD)
