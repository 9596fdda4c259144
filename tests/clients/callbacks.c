/* A program that its driver (callback_driver.c) calls back from inside a call. Prints how many MiB
 * it then gets, 16 at a time, from frames so much deeper (bytes), and how often a launch went.
 *
 *   usage: callbacks alloc|launch return|nest|jump|end DEPTH
 *
 * The callback returns, allocates 64 MiB first, jumps out of the call, or ends its thread, which is
 * another one than the first: the C library unwinds the stack, as an exception does. */
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

static jmp_buf way_out;
static int (*allocate)(uint64_t *, size_t);
static int (*kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static unsigned long got;

static void *find(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) exit(3);
    return found;
}

static int get(unsigned long mib) {
    uint64_t at;
    int result = allocate(&at, mib * MIB);
    if (!result) got += mib;
    return result;
}

static int launch(void) { return kernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static void returns(void) {}
static void nests(void) { get(64); }
static void jumps(void) { longjmp(way_out, 1); }
static void ends(void) { pthread_exit(NULL); }

__attribute__((noinline)) static int rest(size_t depth) {
    volatile char *room = alloca(depth + 16);
    int launched = 0;
    room[0] = 0;
    for (int i = 0; i < 100; i++) launched += !launch();
    while (!get(16)) {}
    return launched + room[0];
}

static int call(const char *name) { return strcmp(name, "alloc") ? launch() : get(16); }

static void *in_thread(void *name) {
    call(name);
    return "it went on";
}

int main(int argc, char **argv) {
    void *context;
    if (argc != 4) return 2;
    void (**callback)(void) = (void (**)(void))find("callback");
    if (((int (*)(unsigned))find("cuInit"))(0)) return 4;
    if (((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0)) return 5;
    allocate = (int (*)(uint64_t *, size_t))find("cuMemAlloc_v2");
    kernel = find("cuLaunchKernel");
    if (launch()) return 6;
    *callback = !strcmp(argv[2], "return") ? returns : !strcmp(argv[2], "nest") ? nests : !strcmp(argv[2], "end") ? ends : jumps;
    if (!strcmp(argv[2], "end")) {
        pthread_t thread;
        void *answer;
        if (pthread_create(&thread, NULL, in_thread, argv[1]) || pthread_join(thread, &answer) || answer) return 8;
    } else if (!setjmp(way_out) && call(argv[1])) {
        return 7;
    }
    int launched = rest(strtoul(argv[3], NULL, 10));
    printf("%lu MiB %d launches\n", got, launched);
    return 0;
}
