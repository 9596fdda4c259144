/* Programs that end while they use a device, in the ways there are. It knows nothing of gpushare.
 *
 *   exits COUNT NS       COUNT children, one after the other: each begins CUDA, has work of NS nanoseconds a kernel under way in two
 *                        streams, and returns from main a moment later. Says how many ended well, and the first status that was not.
 *   handlers NS          a handler registered after cuInit launches a kernel, waits for it and frees memory; says the result
 *   joins NS             a handler registered before cuInit joins a thread whose launch waits; says what that launch came to
 *   after NS             a handler registered before cuInit gives everything back behind the driver's teardown, as runtimes do; says
 *                        the results
 *   waits NS             a thread's launch waits while main returns
 *   quick NS             a handler of quick_exit launches and waits; says the result
 *   main COUNT NS        main leaves by pthread_exit; a thread launches COUNT kernels and waits for each, and says the first result
 *   child NS             a forked child exits; then the parent launches and waits, and says the result
 *   anew NS              a process that has not begun CUDA forks; the child begins it, has work under way, and exits
 *
 * For `joins` and `waits` the gate is to be closed by the first kernel: its length is the second
 * number. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/asleep.h"
#include "common/driver.h"

#define CU(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))

static void *context, *module, *function, *streams[2];
static unsigned long long memory;
static uint64_t ns;
static atomic_int waits, outcome;
static pthread_t thread;

static int begin(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuMemAlloc_v2, &memory, (size_t)4096));
    for (int i = 0; i < 2; i++) TRY(CU(cuStreamCreate, &streams[i], 1));
    TRY(CU(cuModuleLoadData, &module, "any image"));
    return CU(cuModuleGetFunction, &function, module, "spin");
}

static int spin(uint64_t length, void *stream) {
    void *parameters[] = {&length};
    return CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* Work under way, and a moment that is another one each time. */
static int some(unsigned round) {
    TRY(begin());
    for (int i = 0; i < 12; i++) TRY(spin(ns, streams[i % 2]));
    usleep(round * 7919 % 3000);
    return spin(ns, streams[0]);
}

static int of_child(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int exits(unsigned count) {
    unsigned good = 0;
    int bad = 0;
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            exit(some(i));
        }
        int status = of_child(child);
        if (status == 0) good++;
        else if (!bad) bad = status;
    }
    printf("exits %u %d\n", good, bad);
    return 0;
}

static int launches(void) {
    TRY(spin(ns, streams[0]));
    TRY(CU(cuStreamSynchronize, streams[0]));
    return 0;
}
static int uses_all(void) {
    TRY(launches());
    TRY(CU(cuMemFree_v2, memory));
    return CU(cuCtxSynchronize);
}
static void handler(void) {
    printf("result %d\n", uses_all());
    fflush(stdout);
}

static void gives_back(void) {
    unsigned long long at;
    size_t available, all;
    void *event = NULL;
    int results[] = {
        spin(ns, streams[0]),
        CU(cuStreamSynchronize, streams[0]),
        CU(cuMemGetInfo_v2, &available, &all),
        CU(cuMemAlloc_v2, &at, (size_t)4096),
        CU(cuMemFreeAsync, memory, streams[0]),
        CU(cuMemFree_v2, memory),
        CU(cuEventCreate, &event, 2),
        CU(cuStreamDestroy_v2, streams[0]),
        CU(cuModuleUnload, module),
        CU(cuCtxSynchronize),
        CU(cuDevicePrimaryCtxRelease_v2, 0),
        CU(cuDevicePrimaryCtxReset_v2, 0),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) printf("%d ", results[i]);
    printf("\n");
    fflush(stdout);
}

static void *launches_in_thread(void *unused) {
    CU(cuCtxSetCurrent, context);
    waits = (int)syscall(SYS_gettid);
    outcome = spin(ns, streams[1]);
    return unused;
}
static void joins(void) {
    pthread_join(thread, NULL);
    printf("result %d\n", outcome);
    fflush(stdout);
}

/* The first kernel closes the gate behind it; the thread's launch waits. */
static int held(uint64_t length) {
    TRY(begin());
    TRY(spin(length, streams[0]));
    TRY(CU(cuStreamSynchronize, streams[0]));
    pthread_create(&thread, NULL, launches_in_thread, NULL);
    while (!waits || !sleeps(waits)) usleep(100);
    return 0;
}

static unsigned rounds;
static void *goes_on(void *unused) {
    int result = CU(cuCtxSetCurrent, context);
    usleep(20000);
    for (unsigned i = 0; i < rounds && !result; i++) result = launches();
    printf("result %d\n", result);
    fflush(stdout);
    exit(result);
    return unused;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    unsigned long long one = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, two = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
#define IS(name) (!strcmp(how, name))
    ns = one;
    if (IS("exits")) return ns = two, exits((unsigned)one);
    if (IS("anew")) {
        pid_t child = fork();
        if (child == 0) exit(some(3));
        return of_child(child);
    }
    if (IS("joins")) atexit(joins);
    if (IS("after")) atexit(gives_back);
    if (IS("joins") || IS("waits")) return held(two);
    if (IS("quick")) at_quick_exit(handler);
    int result = begin();
    if (result) return result;
    if (IS("after")) return launches();
    if (IS("handlers")) return atexit(handler), spin(ns, streams[1]);
    if (IS("quick")) quick_exit(0);
    if (IS("main")) {
        rounds = (unsigned)one;
        ns = two;
        pthread_create(&thread, NULL, goes_on, NULL);
        pthread_exit(NULL);
    }
    if (IS("child")) {
        pid_t child = fork();
        if (child == 0) exit(0);
        if (of_child(child)) return 3;
        handler();
        return 0;
    }
    return 4;
}
