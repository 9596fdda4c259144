/* A CUDA driver program that keeps a device busy from threads of its own while it answers one
 * command a line on its standard input. It knows nothing of gpushare.
 *
 *   init                 -> init RESULT             cuInit, device 0, its primary context, streams 0 (the default one), 1 and 2 (non-blocking)
 *   launch COUNT NS      -> launch RESULT           COUNT kernels of NS nanoseconds in stream 1, by this thread
 *   post NS              -> post 0                  a thread, "poster", launches one kernel of NS nanoseconds in stream 2 and waits for it
 *   posted               -> posted DONE             whether that is complete
 *   work NS              -> work 0                  a thread launches kernels of NS nanoseconds in stream 1 until it is told to stop
 *   each NS              -> each 0                  the same, waiting for each
 *   count                -> count NUMBER            launches of that thread so far
 *   stop                 -> stop RESULT             it has stopped; its first error
 *   storm THREADS NS     -> storm 0                 THREADS threads launch kernels of NS nanoseconds and graphs of three, in streams of their
 *                                                   own, their own default ones, and the legacy one, until they are told to stop
 *   calm                 -> calm RESULT             they have, and all is complete; the first error
 *   pid                  -> pid NUMBER
 *   beside NS            -> beside RESULT           a launch in stream 2
 *   sync STREAM          -> sync RESULT
 *   query STREAM         -> query RESULT            600 while there is work
 *   copies               -> copies RESULT           memory is made, set, copied both ways and freed
 *   capture COUNT MODE   -> capture GOOD RESULT     captures graphs of three kernels in stream 2 and launches each; how many went well
 *   threads COUNT NS     -> threads RESULT          COUNT threads, each 20 kernels of NS nanoseconds in its own default stream, then waits
 *   contexts COUNT NS    -> contexts RESULT         COUNT times: a context, a stream, 5 kernels of NS nanoseconds, both destroyed at once
 *   reset                -> reset RESULT            cuDevicePrimaryCtxReset, and everything is made anew
 *   dies NS              -> dies RESULT             a thread launches a kernel of NS nanoseconds in its own default stream, and ends
 *   keep BYTES           -> keep RESULT             memory that is not freed
 *   leaving              -> leaving 0               a thread, "leaver", releases the primary context
 *   left                 -> left DONE               whether it has
 *   fork NS              -> fork STATUS             a child begins CUDA anew, runs 5 kernels of NS nanoseconds and ends
 *
 *   captures THREADS N   -> captures GOOD RESULT    N times, THREADS threads capture at once, in all modes, slowly; then each launches its graph
 *                                                   and waits; how many held just what was launched, and went well
 *   fault                -> fault RESULT            a kernel in stream 1 writes to memory that was freed
 *   cancel NS            -> cancel RESULT           a thread that launches kernels of NS nanoseconds is cancelled
 *   tiny BYTES           -> tiny RESULT             init by a thread with so small a stack, and a launch of its
 *   graph NS             -> graph RESULT            makes an executable graph of one kernel of NS nanoseconds, in place of the last one
 *   change NS            -> change RESULT           its kernel takes NS nanoseconds from now on
 *   replay COUNT         -> replay RESULT           launches it COUNT times in stream 1
 *   peek                 -> peek 0                  a thread asks NVML for the memory of device 0
 *   peeked               -> peeked DONE             whether it has its answer
 *   exec                 the program begins anew
 *   exec NS              -> exec PID                a child does and runs 5 kernels of NS nanoseconds
 *   ended                -> ended STATUS            of that child, 9999 while it runs
 *   leave HOW            it ends with status 7: 0 by exit, 1 by _exit, 2 by abort in a thread that launches
 *
 * RESULT is the first CUresult that is not success, as a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/driver.h"

#ifdef THREAD_LOCAL
/* What each thread has of its own, on its stack. */
__attribute__((used)) static __thread char threads_own[THREAD_LOCAL];
#endif

typedef unsigned long long dptr;

static void *context, *function, *streams[3];
static pthread_t worker;
static atomic_int stopping, posted, failed, aborting;
static atomic_long launched;
static uint64_t work_ns;

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static int current(void) { return CALL("cuCtxSetCurrent", (void *))(context); }

static int load(void) {
    void *module;
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int begin(void) {
    int device;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(current());
    for (int i = 1; i < 3; i++) TRY(CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1));
    return load();
}

static int spin_by(const char *name, void *kernel, uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CALL(name, LAUNCH)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
static int spin(uint64_t ns, void *stream) { return spin_by("cuLaunchKernel", function, ns, stream); }
static int wait_for(void *stream) { return CALL("cuStreamSynchronize", (void *))(stream); }

static void *work(void *each) {
    failed = current();
    while (!stopping && !failed) {
        failed = spin(work_ns, streams[1]);
        if (each && !failed) failed = wait_for(streams[1]);
        launched++;
    }
    return NULL;
}

static void *post(void *ns) {
    int result = pthread_setname_np(pthread_self(), "poster");
    if (!result) result = current();
    if (!result) result = spin((uintptr_t)ns, streams[2]);
    if (!result) result = wait_for(streams[2]);
    posted = result ? -result : 1;
    return NULL;
}

static int copies(void) {
    static char bytes[4096];
    dptr at;
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, sizeof bytes));
    TRY(CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(at, bytes, sizeof bytes));
    TRY(CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(at, 7, sizeof bytes, NULL));
    TRY(wait_for(NULL));
    TRY(CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(bytes, at, sizeof bytes));
    if (bytes[4095] != 7) return 999;
    return CALL("cuMemFree_v2", (dptr))(at);
}

static int capture_one(int mode) {
    void *graph, *exec;
    struct timespec pause = {0, 1000000};
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(streams[2], mode));
    for (int i = 0; i < 3; i++) {
        TRY(spin(1000, streams[2]));
        nanosleep(&pause, NULL);
    }
    TRY(CALL("cuStreamEndCapture", (void *, void **))(streams[2], &graph));
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0));
    TRY(CALL("cuGraphLaunch", (void *, void *))(exec, streams[2]));
    TRY(wait_for(streams[2]));
    TRY(CALL("cuGraphExecDestroy", (void *))(exec));
    return CALL("cuGraphDestroy", (void *))(graph);
}

static void *own_stream(void *ns) {
    int result = current();
    for (int i = 0; i < 20 && !result; i++) result = spin_by("cuLaunchKernel_ptsz", function, (uintptr_t)ns, NULL);
    if (!result) result = CALL("cuStreamSynchronize_ptsz", (void *))(NULL);
    return (void *)(intptr_t)result;
}

static int own_streams(int count, uint64_t ns) {
    pthread_t threads[64];
    int result = 0;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, own_stream, (void *)ns);
    for (int i = 0; i < count; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        if (!result) result = (int)(intptr_t)answer;
    }
    return result;
}

static pthread_t stormers[32];
static int storming;

static int graph_of_three(void **exec, void *stream) {
    void *graph;
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, 1));
    for (int i = 0; i < 3; i++) TRY(spin(work_ns / 3, stream));
    TRY(CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(exec, graph, 0);
}

static int storm_in(void *stream, int index) {
    void *exec;
    TRY(current());
    TRY(graph_of_three(&exec, stream));
    for (long i = 0; !stopping && !failed; i++, launched++) {
        if (i % 4 == 0) TRY(CALL("cuGraphLaunch", (void *, void *))(exec, stream));
        else if (i % 4 == 1) TRY(spin_by("cuLaunchKernel_ptsz", function, work_ns, NULL));
        else TRY(spin(work_ns, i % 4 == 2 && index == 0 ? NULL : stream));
        if (aborting) abort();
    }
    TRY(CALL("cuStreamSynchronize_ptsz", (void *))(NULL));
    return wait_for(stream);
}

static void *storm_one(void *index) {
    void *stream;
    int result = current();
    if (!result) result = CALL("cuStreamCreate", (void **, unsigned))(&stream, 1);
    if (!result) result = storm_in(stream, (int)(intptr_t)index);
    int none = 0;
    if (result) atomic_compare_exchange_strong(&failed, &none, result);
    return NULL;
}

static void storm(int threads) {
    stopping = failed = 0;
    launched = 0;
    storming = threads < 32 ? threads : 32;
    for (int i = 0; i < storming; i++) pthread_create(&stormers[i], NULL, storm_one, (void *)(intptr_t)i);
}

static int calm(void) {
    stopping = 1;
    for (int i = 0; i < storming; i++) pthread_join(stormers[i], NULL);
    return failed ? failed : wait_for(NULL);
}

static int passing_context(uint64_t ns) {
    void *passing, *stream, *module, *kernel;
    TRY(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&passing, 0, 0));
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 0));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&kernel, module, "spin"));
    for (int i = 0; i < 5; i++) TRY(spin_by("cuLaunchKernel", kernel, ns, stream));
    TRY(CALL("cuStreamDestroy_v2", (void *))(stream));
    TRY(CALL("cuCtxDestroy_v2", (void *))(passing));
    return current();
}

static int in_child(uint64_t ns) {
    pid_t child = fork();
    if (child == 0) {
        int result = begin();
        for (int i = 0; i < 5 && !result; i++) result = spin(ns, streams[1]);
        _exit(result ? result : wait_for(streams[1]));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

enum { CAPTURED = 6 };
static pthread_barrier_t together;
static atomic_int good;

static int capture_slowly(void *stream, int mode, void **graph) {
    struct timespec pause = {0, 2000000};
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, mode));
    for (int i = 0; i < CAPTURED; i++) {
        TRY(spin(20000, stream));
        nanosleep(&pause, NULL);
    }
    return CALL("cuStreamEndCapture", (void *, void **))(stream, graph);
}

static int use_graph(void *graph, void *stream) {
    void *exec;
    size_t nodes = 0;
    TRY(CALL("cuGraphGetNodes", (void *, void **, size_t *))(graph, NULL, &nodes));
    if (nodes != CAPTURED) return 997;
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0));
    TRY(CALL("cuGraphLaunch", (void *, void *))(exec, stream));
    TRY(wait_for(stream));
    TRY(CALL("cuGraphExecDestroy", (void *))(exec));
    return CALL("cuGraphDestroy", (void *))(graph);
}

/* A capture forbids some calls to other threads: they are made while no thread captures. */
static void *capturer(void *of) {
    int index = (int)((intptr_t)of & 255), rounds = (int)((intptr_t)of >> 8), result = current();
    void *stream = NULL, *graph = NULL;
    if (!result) result = CALL("cuStreamCreate", (void **, unsigned))(&stream, 1);
    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&together);
        if (!result) result = capture_slowly(stream, (index + i) % 3, &graph);
        pthread_barrier_wait(&together);
        if (!result) result = use_graph(graph, stream);
        if (!result) good++;
    }
    return (void *)(intptr_t)result;
}

static int captures(int threads, int rounds) {
    pthread_t all[32];
    int result = 0;
    good = 0;
    threads = threads < 32 ? threads : 32;
    pthread_barrier_init(&together, NULL, threads);
    for (intptr_t i = 0; i < threads; i++) pthread_create(&all[i], NULL, capturer, (void *)(i | (intptr_t)rounds << 8));
    for (int i = 0; i < threads; i++) {
        void *answer;
        pthread_join(all[i], &answer);
        if (!result) result = (int)(intptr_t)answer;
    }
    return result;
}

static int fault(void) {
    dptr at;
    uint64_t words = 1024;
    uint32_t value = 7;
    void *module, *fill, *parameters[] = {&at, &words, &value};
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&fill, module, "fill"));
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 4 << 20));
    TRY(CALL("cuMemFree_v2", (dptr))(at));
    return CALL("cuLaunchKernel", LAUNCH)(fill, 1, 1, 1, 1, 1, 1, 0, streams[1], parameters, NULL);
}

static void *until_cancelled(void *ns) {
    int old;
    current();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    for (;;) {
        if (spin((uintptr_t)ns, streams[1])) return NULL;
        pthread_testcancel();
    }
}

static int cancel(uint64_t ns) {
    struct timespec pause = {0, 30000000};
    pthread_t thread;
    void *answer;
    pthread_create(&thread, NULL, until_cancelled, (void *)ns);
    nanosleep(&pause, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &answer);
    return answer == PTHREAD_CANCELED ? wait_for(streams[1]) : 996;
}

static void *begin_small(void *unused) {
    (void)unused;
    int result = begin();
    if (!result) result = spin(1000, streams[1]);
    return (void *)(intptr_t)result;
}

static int tiny(size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *answer;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, bytes)) return 995;
    if (pthread_create(&thread, &attributes, begin_small, NULL)) return 994;
    pthread_join(thread, &answer);
    return answer ? (int)(intptr_t)answer : current();
}

#include "turns/graphs.h"
#include "turns/threads.h"

static pid_t executed;

static void anew(const char *ns) {
    execl("/proc/self/exe", "turns", ns, NULL);
    _exit(250);
}

static int ended(void) {
    int status = 0;
    if (waitpid(executed, &status, WNOHANG) != executed) return 9999;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

/* As the child that `exec NS` makes. */
static int only_work(uint64_t ns) {
    int result = begin();
    for (int i = 0; i < 5 && !result; i++) result = spin(ns, streams[1]);
    return result ? result : wait_for(streams[1]);
}

int main(int argc, char **argv) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    if (argc > 1) return only_work(strtoull(argv[1], NULL, 10));
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* What stands behind the line "exec" is for the next program. */
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0, two = 0;
        int result = 0;
        if (sscanf(line, "%31s %llu %llu", word, &one, &two) < 1) continue;
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("launch")) for (unsigned long long i = 0; i < one && !result; i++) result = spin(two, streams[1]);
        else if (IS("post")) {
            pthread_t thread;
            posted = 0;
            pthread_create(&thread, NULL, post, (void *)(uintptr_t)one);
            pthread_detach(thread);
        } else if (IS("posted")) result = posted;
        else if (IS("work") || IS("each")) {
            stopping = failed = 0;
            launched = 0;
            work_ns = one;
            pthread_create(&worker, NULL, work, IS("each") ? (void *)1 : NULL);
        } else if (IS("count")) result = (int)launched;
        else if (IS("stop")) {
            stopping = 1;
            pthread_join(worker, NULL);
            result = failed;
        } else if (IS("beside")) {
            result = spin(one, streams[2]);
        } else if (IS("storm")) {
            work_ns = two;
            storm((int)one);
        } else if (IS("calm")) result = calm();
        else if (IS("captures")) {
            result = captures((int)one, (int)two);
            printf("captures %d %d\n", good, result);
            continue;
        } else if (IS("fault")) result = fault();
        else if (IS("cancel")) result = cancel(one);
        else if (IS("tiny")) result = tiny(one);
        else if (IS("dies")) result = dies(one);
        else if (IS("keep")) result = keep(one);
        else if (IS("leaving")) {
            pthread_t thread;
            left = 0;
            pthread_create(&thread, NULL, leave_context, NULL);
            pthread_detach(thread);
        } else if (IS("left")) result = left;
        else if (IS("graph")) result = make_graph(one);
        else if (IS("change")) result = change_graph(one);
        else if (IS("replay"))
            for (unsigned long long i = 0; i < one && !result; i++) result = CALL("cuGraphLaunch", (void *, void *))(replayed, streams[1]);
        else if (IS("peek")) {
            pthread_t thread;
            peeked = 0;
            pthread_create(&thread, NULL, peek, NULL);
            pthread_detach(thread);
        } else if (IS("peeked")) result = peeked;
        else if (IS("exec")) {
            char text[32];
            snprintf(text, sizeof text, "%llu", one);
            executed = one ? fork() : 0;
            if (executed == 0) anew(one ? text : NULL);
            result = executed;
        } else if (IS("ended")) result = ended();
        else if (IS("leave")) {
            if (one == 0) exit(7);
            if (one == 1) _exit(7);
            aborting = 1;
            pause();
        } else if (IS("pid")) result = (int)getpid();
        else if (IS("sync")) result = wait_for(streams[one % 3]);
        else if (IS("query")) result = CALL("cuStreamQuery", (void *))(streams[one % 3]);
        else if (IS("copies")) result = copies();
        else if (IS("capture")) {
            unsigned long long good = 0;
            while (good < one && !(result = capture_one((int)two))) good++;
            printf("capture %llu %d\n", good, result);
            continue;
        } else if (IS("threads")) result = own_streams((int)one, two);
        else if (IS("contexts")) for (unsigned long long i = 0; i < one && !result; i++) result = passing_context(two);
        else if (IS("reset")) {
            result = CALL("cuDevicePrimaryCtxReset_v2", (int))(0);
            if (!result) result = begin();
        } else if (IS("fork")) result = in_child(one);
        else result = 998;
        printf("%s %d\n", word, result);
    }
    return 0;
}
