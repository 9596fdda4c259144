/* A program to be killed: allocates and frees in several ways, so that its books change often, and
 * leaves some of it allocated.
 *
 *   usage: victim [CHILD_FILE]
 *
 * With CHILD_FILE it forks after its first allocations; the child writes its pid there, holds
 * everything it inherited, and does nothing until it is killed. Ends with status 0, or 1 at the
 * first unexpected result. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 24, MIB = 1 << 20 };

typedef unsigned long long dptr;
struct prop { int type, handle_types, location_type, device; void *win32; unsigned char flags[8]; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };

static void *driver;

static void *function(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(1);
    return found;
}

static void check(int result) {
    if (result) exit(1);
}

static void fork_child(const char *file) {
    int ready[2];
    char byte = 0;
    if (pipe(ready)) exit(1);
    if (fork()) {
        /* The child is known before the next store, or whoever kills us there would not look for it. */
        if (read(ready[0], &byte, 1) != 1) exit(1);
        close(ready[0]);
        close(ready[1]);
        return;
    }
    FILE *out = fopen(file, "w");
    if (out) {
        fprintf(out, "%d\n", (int)getpid());
        fclose(out);
    }
    if (write(ready[1], &byte, 1) != 1) exit(1);
    alarm(300); /* Should the test die, so does this. */
    for (;;) pause();
}

int main(int argc, char **argv) {
    void *context, *array;
    dptr at[COUNT], managed, address;
    uint64_t handle;
    struct prop prop = {.type = 1, .location_type = 1};
    struct array3d shape = {1024, 1024, 0, 0x20, 1, 0};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    check(((int (*)(unsigned))function("cuInit"))(0));
    check(((int (*)(void **, int))function("cuDevicePrimaryCtxRetain"))(&context, 0));
    check(((int (*)(void *))function("cuCtxSetCurrent"))(context));
    int (*alloc)(dptr *, size_t) = (int (*)(dptr *, size_t))function("cuMemAlloc_v2");
    int (*release)(dptr) = (int (*)(dptr))function("cuMemFree_v2");
    for (int i = 0; i < COUNT; i++) {
        check(alloc(&at[i], (size_t)(i % 5 + 1) * MIB + (size_t)i * 512));
        if (i == COUNT / 4 && argc > 1) fork_child(argv[1]);
        if (i % 3 == 2) check(release(at[i - 1]));
    }
    check(((int (*)(dptr *, size_t, unsigned))function("cuMemAllocManaged"))(&managed, 3 * MIB, 1));
    check(((int (*)(void **, void *))function("cuArray3DCreate_v2"))(&array, &shape));
    check(((int (*)(uint64_t *, size_t, void *, unsigned long long))function("cuMemCreate"))(&handle, 4 * MIB, &prop, 0));
    check(((int (*)(dptr *, size_t, size_t, dptr, unsigned long long))function("cuMemAddressReserve"))(&address, 4 * MIB, 0, 0, 0));
    check(((int (*)(dptr, size_t, size_t, uint64_t, unsigned long long))function("cuMemMap"))(address, 4 * MIB, 0, handle, 0));
    check(((int (*)(uint64_t))function("cuMemRelease"))(handle));
    check(((int (*)(dptr, size_t))function("cuMemUnmap"))(address, 4 * MIB));
    check(((int (*)(void *))function("cuArrayDestroy"))(array));
    check(release(managed));
    for (int i = 0; i < COUNT; i += 3) check(release(at[i]));
    return 0;
}
