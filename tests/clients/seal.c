/* A CUDA driver program that calls functions by their names, each from a thread of its own, while it
 * answers one command a line on its standard input. It knows nothing of gpushare.
 *
 *   init            -> init RESULT      cuInit, device 0, its primary context
 *   second          -> second RESULT    from now on threads call with a context of device 1 current
 *   call NAME       -> call FOUND       a thread calls it with zeros for arguments; 0 if the driver has no such function
 *   pending         -> pending COUNT    calls that have not returned
 *   spin NS         -> spin RESULT      a kernel of so long in a stream of its own
 *   await, write    -> await RESULT     the same stream waits for a value in pinned memory; the value is written by another stream
 *   begin, end      -> begin RESULT     a capture in a third stream
 *   leap            -> leap RESULT      a thread that calls a copy is made to jump out of it by a signal; whether it was in it
 *   alloc BYTES     -> alloc RESULT     and a pattern in it
 *   check           -> check WRONG      bytes of it that are not the pattern's
 *   sync            -> sync RESULT      cuCtxSynchronize
 *   exit COUNT      it exits; a handler registered before cuInit makes COUNT copies */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/asleep.h"
#include "common/driver.h"

typedef unsigned long long dptr;

static void *context, *called_in, *function, *streams[3];
static atomic_int pending;
static uint32_t *word;

static int begin(void) {
    int device;
    void *module;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(CALL("cuCtxSetCurrent", (void *))(called_in = context));
    for (int i = 0; i < 3; i++) TRY(CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1));
    TRY(CALL("cuMemHostAlloc", (void **, size_t, unsigned))((void **)&word, 4096, 2));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int second(void) {
    int device;
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 1));
    return CALL("cuDevicePrimaryCtxRetain", (void **, int))(&called_in, device);
}

typedef int (*any)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                   uintptr_t, uintptr_t);

static void *one(void *found) {
    CALL("cuCtxSetCurrent", (void *))(called_in);
    ((any)found)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    pending--;
    return NULL;
}

static int call(const char *name) {
    pthread_t thread;
    pthread_attr_t small;
    void *found = dlsym(driver, name);
    if (!found) return 0;
    pending++;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    return pthread_create(&thread, &small, one, found) == 0;
}

static int spin(uint64_t ns) {
    void *parameters[] = {&ns};
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                   void **))(function, 1, 1, 1, 1, 1, 1, 0, streams[0], parameters, NULL);
}

static int values(int write) {
    static uint32_t now;
    if (!write) now++;
    return CALL(write ? "cuStreamWriteValue32_v2" : "cuStreamWaitValue32_v2", (void *, dptr, uint32_t, unsigned))(
        streams[write], (dptr)(uintptr_t)word, now, 0);
}

static dptr memory;
static size_t size;

static int make(size_t bytes) {
    char *pattern = malloc(size = bytes);
    for (size_t i = 0; i < bytes; i++) pattern[i] = i * 7 + (i >> 12);
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&memory, bytes));
    int result = CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(memory, pattern, bytes);
    free(pattern);
    return result;
}

static long wrong(void) {
    char *found = calloc(1, size);
    long count = 0;
    if (CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(found, memory, size)) return -1;
    for (size_t i = 0; i < size; i++) count += found[i] != (char)(i * 7 + (i >> 12));
    free(found);
    return count;
}

static sigjmp_buf out;
static atomic_int jumped, leaper;
static void jump(int number) {
    (void)number;
    siglongjmp(out, 1);
}

static void *leaps(void *nothing) {
    static char byte;
    CALL("cuCtxSetCurrent", (void *))(context);
    if (sigsetjmp(out, 1) == 0) {
        leaper = (int)syscall(SYS_gettid);
        CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(0, &byte, 1);
        jumped = 2;
    } else {
        jumped = 1;
    }
    /* It stays, so that its stack does. */
    while (1) pause();
    return nothing;
}

static int leap(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGUSR1, &action, NULL);
    jumped = leaper = 0;
    pthread_create(&thread, NULL, leaps, NULL);
    /* Its copy is held once it is seen asleep a few times in a row: it holds no lock of the loader. */
    for (int seen = 0; !jumped; usleep(2000)) {
        seen = leaper && sleeps(leaper) ? seen + 1 : 0;
        if (seen == 5) pthread_kill(thread, SIGUSR1);
    }
    return jumped;
}

static unsigned long long last;
static void copies_at_exit(void) {
    static char byte;
    for (; last; last--) CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(0, &byte, 1);
}

int main(void) {
    char line[256], name[128];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    atexit(copies_at_exit);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long number = 0;
        char argument[128] = "";
        if (sscanf(line, "%127s %127s", name, argument) < 1) continue;
        number = strtoull(argument, NULL, 10);
        void *graph;
        if (!strcmp(name, "init")) printf("init %d\n", begin());
        else if (!strcmp(name, "second")) printf("second %d\n", second());
        else if (!strcmp(name, "call")) printf("call %d\n", call(argument));
        else if (!strcmp(name, "pending")) printf("pending %d\n", pending);
        else if (!strcmp(name, "spin")) printf("spin %d\n", spin(number));
        else if (!strcmp(name, "await")) printf("await %d\n", values(0));
        else if (!strcmp(name, "write")) printf("write %d\n", values(1));
        else if (!strcmp(name, "begin")) printf("begin %d\n", CALL("cuStreamBeginCapture_v2", (void *, int))(streams[2], 2));
        else if (!strcmp(name, "end")) printf("end %d\n", CALL("cuStreamEndCapture", (void *, void **))(streams[2], &graph));
        else if (!strcmp(name, "exit")) last = number, exit(0);
        else if (!strcmp(name, "leap")) printf("leap %d\n", leap());
        else if (!strcmp(name, "alloc")) printf("alloc %d\n", make(number));
        else if (!strcmp(name, "check")) printf("check %ld\n", wrong());
        else if (!strcmp(name, "sync")) printf("sync %d\n", CALL("cuCtxSynchronize", (void))());
        else return 4;
    }
    return 0;
}
