/* A CUDA driver program that leaves its calls in every way except by returning. It answers one
 * command a line on its standard input and knows nothing of gpushare.
 *
 *   init                 -> init RESULT             cuInit, device 0, its primary context, a non-blocking stream
 *   first                -> first HOW               cuInit, and the primary context: left by siglongjmp once the call blocks
 *   launch COUNT NS      -> launch RESULT           COUNT kernels of NS nanoseconds
 *   try DEPTH NS         -> try HOW                 launches a kernel from a frame DEPTH bytes deeper, and leaves it by siglongjmp once it
 *                                                   blocks: HOW is 1 if it was left, 0 if it returned
 *   fill DEPTH NS        -> fill HOW                the same, again and again behind it: until the driver has no room for more
 *   known NS             -> known RESULT            a kernel of NS nanoseconds, many times, each time waited for
 *   held NS HOW          -> held HOW                a kernel of NS nanoseconds, then the file of SOFTGPU_HOLD is made, and behind it the same kernel
 *                                                   once more: with HOW 1 as `try`, with 0 it is waited for
 *   vanish NS NS         -> vanish RESULT           the same by a thread that knows the kernel as one of the second NS, and ends in the second launch
 *   capture              -> capture HOW             cuStreamBeginCapture, left by siglongjmp once it blocks: 1 if it was left
 *   alloc DEPTH BYTES    -> alloc RESULT            memory
 *   ask DEPTH BYTES      -> ask HOW                 the same, left by siglongjmp once it blocks
 *   has                  -> has BYTES               what has been allocated
 *   nested DEPTH BYTES   -> nested RESULT           try, but the handler allocates memory and returns; then the launch is waited for
 *   cancel NS            -> cancel RESULT           a thread that blocks in a launch is cancelled; 0 once it is told so
 *   cancelled            -> cancelled DONE          whether it has ended
 *   post NS              -> post 0                  another thread launches a kernel of NS nanoseconds and waits for it
 *   posted               -> posted DONE             whether that is complete
 *   sync                 -> sync RESULT
 *   spin NS              -> spin HOW                another thread does as `fill`, and then computes for ever, with pauses
 *
 * RESULT is the first CUresult that is not success, as a number. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/asleep.h"
#include "common/driver.h"

typedef unsigned long long dptr;

static void *context, *function, *stream;
static int (*kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*allocate)(dptr *, size_t);
static sigjmp_buf way_out;
static atomic_int watching, posted, cancelled, canceller_id;
static atomic_ullong held;
static volatile dptr in_handler;
static volatile int handlers_result;

static int current(void) { return CALL("cuCtxSetCurrent", (void *))(context); }

static int begin(void) {
    void *module;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0));
    TRY(current());
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    kernel = symbol("cuLaunchKernel");
    allocate = symbol("cuMemAlloc_v2");
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int retain(uint64_t device) { return CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, (int)device); }

/* What the library does but once is done before the call that blocks. */
static int start(void) {
    size_t bytes;
    TRY(CALL("cuInit", (unsigned))(0));
    return CALL("cuDeviceTotalMem_v2", (size_t *, int))(&bytes, 0);
}

static int spin(uint64_t ns) {
    void *parameters[] = {&ns};
    return kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int get(uint64_t bytes) {
    dptr at;
    int result = allocate(&at, bytes);
    if (!result) held += bytes;
    return result;
}

static int capture(uint64_t mode) { return CALL("cuStreamBeginCapture_v2", (void *, int))(stream, (int)mode); }

/* Calls from a frame so much deeper, whose bytes nobody writes. */
__attribute__((noinline)) static int deeper(uint64_t depth, int (*call)(uint64_t), uint64_t argument) {
    volatile char *room = alloca(depth + 16);
    room[0] = 0;
    int result = call(argument);
    room[0] = (char)result;
    return result;
}

static void leave(int signal) {
    (void)signal;
    siglongjmp(way_out, 1);
}

static void allocate_in_handler(int signal) {
    (void)signal;
    handlers_result = get(in_handler);
    if (write(1, "handled\n", 8) != 8) _exit(9);
}

/* The watched thread sleeps for another reason than the call that it is to be left in. */
static atomic_int again;

struct watched {
    pthread_t thread;
    pid_t id;
};

/* Sends the signal to a thread that has been seen asleep a few times in a row. */
static void *watch(void *of) {
    struct watched *watched = of;
    int seen = 0;
    while (watching) {
        seen = !again && sleeps(watched->id) ? seen + 1 : 0;
        if (seen >= 5) {
            pthread_kill(watched->thread, SIGUSR1);
            break;
        }
        usleep(2000);
    }
    return NULL;
}

/* Calls under a handler that meets the call once it blocks. 1 if the handler left it, else 0. */
static int watched(void (*handler)(int), uint64_t depth, int (*call)(uint64_t), uint64_t argument) {
    struct sigaction action = {.sa_handler = handler};
    struct watched me = {pthread_self(), (pid_t)syscall(SYS_gettid)};
    pthread_t watcher;
    volatile int left = 0;
    sigaction(SIGUSR1, &action, NULL);
    watching = 1;
    pthread_create(&watcher, NULL, watch, &me);
    if (sigsetjmp(way_out, 1)) left = 1;
    else deeper(depth, call, argument);
    watching = 0;
    pthread_join(watcher, NULL);
    return left;
}

/* A long kernel, and short ones behind it: the driver has no room until the long one is over. If this thread was held up for so long
 * that it is over before there is no room, another long one follows. */
static int again_and_again(uint64_t ns) {
    for (unsigned n = 0;; n++) TRY(spin(n % 4096 ? 1000 : ns));
}

static int known(uint64_t ns) {
    for (int i = 0; i < 20; i++) {
        TRY(spin(ns));
        TRY(CALL("cuStreamSynchronize", (void *))(stream));
    }
    return 0;
}

/* From now on the driver holds launches. */
static int hold(void) {
    const char *held_by = getenv("SOFTGPU_HOLD");
    const char *file = held_by ? strchr(held_by, ':') : NULL;
    int made = file ? creat(file + 1, 0600) : -1;
    return made < 0 ? 993 : close(made);
}

/* As what the kernel was last known. */
static uint64_t known_as;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The second launch takes no lock if it comes soon behind the first. If this thread was held up meanwhile, both are made again. */
static int then_held(uint64_t ns) {
    again = 1;
    for (;;) {
        uint64_t begin = now();
        TRY(spin(ns));
        if (now() - begin < 2000000) break;
        TRY(CALL("cuStreamSynchronize", (void *))(stream));
        TRY(known(known_as));
    }
    TRY(hold());
    again = 0;
    return spin(1000);
}

static void *vanishing(void *ns) {
    current();
    known(known_as);
    canceller_id = (int)syscall(SYS_gettid);
    then_held((uintptr_t)ns);
    return NULL;
}

/* Ends the thread where it is. */
static void vanishes(int signal) {
    (void)signal;
    syscall(SYS_exit, 0);
}

static int vanish(uint64_t ns) {
    struct sigaction action = {.sa_handler = vanishes};
    pthread_t thread;
    int seen = 0;
    canceller_id = 0;
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, vanishing, (void *)(uintptr_t)ns);
    while (seen < 5) {
        usleep(2000);
        seen = canceller_id && !again && sleeps(canceller_id) ? seen + 1 : 0;
    }
    pthread_kill(thread, SIGUSR1);
    return pthread_join(thread, NULL);
}

static void *post(void *ns) {
    int result = current();
    if (!result) result = spin((uintptr_t)ns);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    posted = result ? -result : 1;
    return NULL;
}

static void *until_cancelled(void *ns) {
    current();
    canceller_id = (int)syscall(SYS_gettid);
    for (;;) {
        if (spin((uintptr_t)ns)) return NULL;
        pthread_testcancel();
    }
}

static pthread_t victim;

static void *wait_for_victim(void *unused) {
    void *answer;
    pthread_join(victim, &answer);
    cancelled = answer == PTHREAD_CANCELED ? 1 : 2;
    return unused;
}

static int cancel(uint64_t ns) {
    pthread_t waiter;
    int seen = 0;
    cancelled = canceller_id = 0;
    pthread_create(&victim, NULL, until_cancelled, (void *)(uintptr_t)ns);
    while (seen < 5) {
        usleep(2000);
        seen = canceller_id && !again && sleeps(canceller_id) ? seen + 1 : 0;
    }
    pthread_create(&waiter, NULL, wait_for_victim, NULL);
    pthread_detach(waiter);
    return pthread_cancel(victim);
}

/* A thread that left a launch, and computes for ever. */
static atomic_int computes;

static int wait_in_launch(uint64_t ns) { return again_and_again(ns); }

static void *leave_and_compute(void *ns) {
    current();
    computes = watched(leave, 0, wait_in_launch, (uintptr_t)ns) ? 1 : 2;
    for (;;) {
        for (volatile int i = 0; i < 1000000; i++) {}
        usleep(1000);
    }
    return NULL;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0, two = 0;
        long long result = 0;
        if (sscanf(line, "%31s %llu %llu", word, &one, &two) < 1) continue;
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("first")) result = start() ? 997 : watched(leave, 0, retain, 0);
        else if (IS("launch")) for (unsigned long long i = 0; i < one && !result; i++) result = spin(two);
        else if (IS("try")) result = watched(leave, one, spin, two);
        else if (IS("fill")) result = watched(leave, one, again_and_again, two);
        else if (IS("capture")) result = watched(leave, 0, capture, 0);
        else if (IS("known")) { known_as = one; result = known(one); }
        else if (IS("held")) result = two ? watched(leave, 0, then_held, one) : then_held(one);
        else if (IS("vanish")) { known_as = two; result = vanish(one); }
        else if (IS("alloc")) result = deeper(one, get, two);
        else if (IS("ask")) result = watched(leave, one, get, two);
        else if (IS("has")) result = (long long)held;
        else if (IS("nested")) {
            in_handler = two;
            handlers_result = -1;
            watched(allocate_in_handler, one, spin, 1000);
            result = handlers_result;
        } else if (IS("cancel")) result = cancel(one);
        else if (IS("cancelled")) result = cancelled;
        else if (IS("post")) {
            pthread_t thread;
            posted = 0;
            pthread_create(&thread, NULL, post, (void *)(uintptr_t)one);
            pthread_detach(thread);
        } else if (IS("posted")) result = posted;
        else if (IS("sync")) result = CALL("cuStreamSynchronize", (void *))(stream);
        else if (IS("spin")) {
            pthread_t thread;
            computes = 0;
            pthread_create(&thread, NULL, leave_and_compute, (void *)(uintptr_t)one);
            pthread_detach(thread);
            while (!computes) usleep(1000);
            result = computes;
        } else result = 998;
        printf("%s %lld\n", word, result);
    }
    return 0;
}
