/* Says what is loaded before and after its use of CUDA, and meets its quota. It is built against an old glibc, whose
 * functions for threads and for the dynamic linker are in libraries of their own.
 *
 *   DIRECT   linked with libcuda.so.1, so that the program itself needs no library but libc
 *   else     opens it for itself (RTLD_LOCAL), as most programs do
 *
 *   oldlinks LIMIT   with a memory limit of so many bytes
 *
 * One line for each step: its name and the CUresult, or whether libpthread and libdl are mapped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef DIRECT
#include <dlfcn.h>
#endif

typedef unsigned long long dptr;

#define CALLS(X) \
    X(cuInit, (unsigned)) \
    X(cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuCtxSetCurrent, (void *)) \
    X(cuMemAlloc_v2, (dptr *, size_t)) \
    X(cuMemFree_v2, (dptr)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) \
    X(cuStreamSynchronize, (void *))

#ifdef DIRECT
#define DECLARE(name, types) int name types;
CALLS(DECLARE)
static void find(void) {}
#else
#define DECLARE(name, types) static int (*name) types;
CALLS(DECLARE)
static void find(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#define FIND(name, types) \
    if (!driver || !(name = (int(*) types)dlsym(driver, #name))) printf("no %s: %s\n", #name, dlerror()), exit(2);
    CALLS(FIND)
}
#endif

static void say_loaded(const char *when) {
    char line[4096];
    int threads = 0, linker = 0, ours = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        threads |= strstr(line, "/libpthread") != NULL;
        linker |= strstr(line, "/libdl") != NULL;
        ours |= strstr(line, "/libgpushare.so") != NULL;
    }
    if (maps) fclose(maps);
    printf("%s: libpthread %d, libdl %d, libgpushare %d\n", when, threads, linker, ours);
}

int main(int argc, char **argv) {
    size_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, left, all;
    void *context;
    dptr first, second;
    say_loaded("before");
    find();
    printf("init %d\n", cuInit(0));
    printf("retain %d\n", cuDevicePrimaryCtxRetain(&context, 0));
    printf("current %d\n", cuCtxSetCurrent(context));
    printf("half and more %d\n", cuMemAlloc_v2(&first, limit / 4 * 3));
    printf("again %d\n", cuMemAlloc_v2(&second, limit / 4 * 3));
    printf("free %d\n", cuMemFree_v2(first));
    printf("once more %d\n", cuMemAlloc_v2(&first, limit / 4 * 3));
    int answer = cuMemGetInfo_v2(&left, &all);
    printf("total %d %d\n", answer, all == limit);
    printf("wait %d\n", cuStreamSynchronize(NULL));
    say_loaded("after");
    /* The C library forks, with its handlers. The quota holds in the child, too. */
    fflush(stdout);
    if (daemon(1, 1)) return 1;
    printf("child %d\n", cuMemAlloc_v2(&second, limit / 4 * 3));
    return 0;
}
