/* A preloaded library that observes a program's calls to the driver: it wraps functions by name, in
 * the usual way. It knows nothing of gpushare. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int calls;

int checker_calls(void) { return calls; }

int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
    int (*next)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    calls++;
    return next ? next(at, bytes) : 500;
}

int cuMemFree_v2(unsigned long long at) {
    int (*next)(unsigned long long) = (int (*)(unsigned long long))dlsym(RTLD_NEXT, "cuMemFree_v2");
    calls++;
    return next ? next(at) : 500;
}

int cuInit(unsigned flags) {
    int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    calls++;
    return next ? next(flags) : 500;
}
