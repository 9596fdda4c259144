/* What marks of ours could disturb, each in a process of its own: run without the library, and with it under a cap, which opens and closes the gate all the time.
 * Prints a line for each: its name, and "ok" or how it ended. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE = 20, ROUNDS = 60, THREADS = 4, LEAVING = 8, NON_BLOCKING = 1, GLOBAL = 0, SM = 1, IS_DEFAULT_STREAM = 1 };
static const uint64_t SHORT = 2000000; /* ns */

/* spin(uint64 ns) and fill(uint32 *dst, uint64 n, uint32 value), which writes one word here: softgpu knows both by name. */
static const char spin_ptx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    ".reg .pred %p; .reg .b64 %d<4>;\n"
    "ld.param.u64 %d0, [ns]; mov.u64 %d1, %globaltimer;\n"
    "LOOP: mov.u64 %d2, %globaltimer; sub.u64 %d3, %d2, %d1; setp.lt.u64 %p, %d3, %d0; @%p bra LOOP;\n"
    "ret;\n}\n"
    ".visible .entry fill(.param .u64 dst, .param .u64 n, .param .u32 value) {\n"
    ".reg .b64 %d0; .reg .b32 %v;\n"
    "ld.param.u64 %d0, [dst]; ld.param.u32 %v, [value]; st.global.u32 [%d0], %v; ret;\n}\n";

static void *context, *kernel, *filler;

static void load(void) {
    void *module;
    CU("cuModuleLoadData", (void **, const void *), (&module, spin_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "spin"));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&filler, module, "fill"));
}

static void begin(void) { context = make_context(), load(); }

#define LAUNCH(name, function, stream, parameters)                                                                               \
    CU(name, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),               \
       (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL))

static void spin(void *stream) {
    uint64_t ns = SHORT;
    void *parameters[] = {&ns};
    LAUNCH("cuLaunchKernel", kernel, stream, parameters);
}

static void *stream_of(unsigned flags) {
    void *stream;
    CU("cuStreamCreate", (void **, unsigned), (&stream, flags));
    return stream;
}

static void finish(void *stream) { CU("cuStreamSynchronize", (void *), (stream)); }
static void finish_all(void) { CU("cuCtxSynchronize", (void), ()); }

/* A blocking stream waits for a value that another one writes later: a mark between the two must not make the second wait for the first. */
static void values(void) {
    begin();
    void *waits = stream_of(0), *writes = stream_of(0), *word;
    dptr at;
    CU("cuMemHostAlloc", (void **, size_t, unsigned), (&word, 4096, 2));
    CU("cuMemHostGetDevicePointer_v2", (dptr *, void *, unsigned), (&at, word, 0));
    *(volatile uint32_t *)word = 0;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CU("cuStreamWaitValue32_v2", (void *, dptr, uint32_t, unsigned), (waits, at, round, 0));
        spin(waits), spin(writes);
        CU("cuStreamWriteValue32_v2", (void *, dptr, uint32_t, unsigned), (writes, at, round, 0));
        if (round % 8 == 0) finish(waits);
    }
    finish_all();
}

static volatile int captured;

static void *allocates(void *nothing) {
    CU("cuCtxSetCurrent", (void *), (context));
    void *stream = stream_of(NON_BLOCKING);
    int mode = 2; /* Relaxed, as PyTorch's allocator: a global capture of another thread forbids allocations otherwise. */
    CU("cuThreadExchangeStreamCaptureMode", (int *), (&mode));
    while (!captured) {
        dptr at;
        CU("cuMemAllocAsync", (dptr *, size_t, void *), (&at, 1 << 20, stream));
        spin(stream);
        CU("cuMemFreeAsync", (dptr, void *), (at, stream));
        usleep(1000); /* A wait for the stream is what a global capture forbids. */
    }
    finish(stream);
    return nothing;
}

/* One thread captures, in the mode that forbids other threads most; another one allocates, launches and frees. */
static void captures(void) {
    begin();
    void *stream = stream_of(NON_BLOCKING), *graph, *exec;
    pthread_t beside;
    spin(stream), finish(stream);
    pthread_create(&beside, NULL, allocates, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        CU("cuStreamBeginCapture_v2", (void *, int), (stream, GLOBAL));
        for (int i = 0; i < 20; i++) spin(stream);
        usleep(5000);
        CU("cuStreamEndCapture", (void *, void **), (stream, &graph));
        CU("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long), (&exec, graph, 0));
        if (round % 8 == 0) {
            CU("cuGraphLaunch", (void *, void *), (exec, stream));
            finish(stream);
        }
        CU("cuGraphExecDestroy", (void *), (exec));
        CU("cuGraphDestroy", (void *), (graph));
    }
    captured = 1;
    pthread_join(beside, NULL);
}

struct resource { unsigned char bytes[144]; }; /* CUdevResource */

/* Green contexts come and go with work under way. */
static void greens(void) {
    begin();
    struct resource all;
    void *desc, *green, *stream;
    CU("cuDeviceGetDevResource", (int, struct resource *, int), (0, &all, SM));
    for (int round = 0; round < ROUNDS / 4; round++) {
        CU("cuDevResourceGenerateDesc", (void **, struct resource *, unsigned), (&desc, &all, 1));
        CU("cuGreenCtxCreate", (void **, void *, int, unsigned), (&green, desc, 0, IS_DEFAULT_STREAM));
        CU("cuGreenCtxStreamCreate", (void **, void *, unsigned, int), (&stream, green, NON_BLOCKING, 0));
        spin(stream), spin(NULL);
        if (round % 2) finish(stream);
        /* The other way round, an H100 with driver 580.159.04 says that the context is destroyed. */
        CU("cuStreamDestroy_v2", (void *), (stream));
        CU("cuGreenCtxDestroy", (void *), (green));
    }
    finish_all();
}

static void *own_stream(void *nothing) {
    uint64_t ns = SHORT;
    void *parameters[] = {&ns};
    CU("cuCtxSetCurrent", (void *), (context));
    for (int i = 0; i < ROUNDS / 2; i++) LAUNCH("cuLaunchKernel_ptsz", kernel, NULL, parameters);
    if (nothing) CU("cuStreamSynchronize_ptsz", (void *), (NULL));
    return nothing;
}

/* Threads launch into their own default streams, and some end with work under way; the legacy stream beside them. */
static void threads(void) {
    pthread_t all[THREADS];
    begin();
    for (size_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, own_stream, i % 2 ? &all[i] : NULL);
    for (int i = 0; i < ROUNDS / 4; i++) spin(NULL);
    for (size_t i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    finish_all();
}

/* A kernel's fault behind other work is told by the next wait, and the process ends as ever. */
static void faults(void) {
    begin();
    dptr wrong = 0x1000;
    uint64_t n = 1;
    uint32_t value = 1;
    void *parameters[] = {&wrong, &n, &value}, *stream = stream_of(NON_BLOCKING);
    for (int i = 0; i < ROUNDS; i++) spin(stream);
    LAUNCH("cuLaunchKernel", filler, stream, parameters);
    int told = ((int (*)(void *))driver_symbol("cuStreamSynchronize"))(stream);
    int again = ((int (*)(void))driver_symbol("cuCtxSynchronize"))();
    if (told < 700 || again != told) fprintf(stderr, "the wait answers %d, the next %d\n", told, again), exit(1);
}

/* The primary context is emptied with work under way, and used anew. */
static void resets(void) {
    begin();
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < ROUNDS / 4; i++) spin(NULL);
        CU("cuDevicePrimaryCtxReset_v2", (int), (0));
        CU("cuDevicePrimaryCtxRetain", (void **, int), (&context, 0));
        CU("cuCtxSetCurrent", (void *), (context));
        load();
    }
    spin(NULL), finish_all();
}

/* Processes end with work under way, by exit and by _exit. */
static void ends(void) {
    pid_t all[LEAVING];
    for (int i = 0; i < LEAVING; i++) {
        all[i] = fork();
        if (all[i]) continue;
        begin();
        for (int j = 0; j < ROUNDS; j++) spin(NULL);
        if (i % 4 == 3) _exit(0);
        exit(0);
    }
    for (int i = 0; i < LEAVING; i++) {
        int status;
        waitpid(all[i], &status, 0);
        if (status) fprintf(stderr, "process %d of %d ends with %x\n", i, LEAVING, status), exit(1);
    }
}

static const struct { const char *name; void (*work)(void); } all[] = {
    {"values", values}, {"captures", captures}, {"greens", greens}, {"threads", threads}, {"faults", faults}, {"resets", resets}, {"ends", ends},
};

int main(void) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int said[2], status;
        char words[200] = "";
        if (pipe(said)) return 1;
        pid_t child = fork();
        if (!child) {
            setpgid(0, 0);
            dup2(said[1], 2), close(said[0]), close(said[1]);
            alarm(PATIENCE);
            all[i].work();
            exit(0);
        }
        close(said[1]);
        waitpid(child, &status, 0);
        kill(-child, 9); /* what it may have left */
        ssize_t count = read(said[0], words, sizeof words - 1);
        close(said[0]);
        words[count > 0 ? count : 0] = 0;
        words[strcspn(words, "\n")] = 0;
        if (!status) printf("%s ok\n", all[i].name);
        else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) printf("%s no end within %d s %s\n", all[i].name, PATIENCE, words);
        else printf("%s %s %d: %s\n", all[i].name, WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words);
        fflush(stdout);
    }
    return 0;
}
