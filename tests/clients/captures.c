/* A CUDA driver program of two threads, captures and stream-ordered memory that executes commands
 * from its standard input, with one answer a line. It knows nothing of gpushare.
 *
 *   init                    -> init RESULT               cuInit, device 0, its primary context, streams 1 to 4 (non-blocking)
 *   begin MODE STREAM       -> begin RESULT              cuStreamBeginCapture_v2 (0 global, 1 thread-local, 2 relaxed)
 *   begin-to MODE STREAM    -> begin-to RESULT           cuStreamBeginCaptureToGraph
 *   end STREAM              -> end RESULT                cuStreamEndCapture; the graph is destroyed
 *   fork FROM TO            -> fork RESULT               TO joins the capture of FROM
 *   join FROM TO            -> join RESULT               FROM is joined back into TO
 *   status STREAM           -> status NUMBER             0 none, 1 captures, 2 captures and is invalid
 *   mode MODE               -> mode RESULT               this thread's
 *   destroy STREAM          -> destroy RESULT
 *   make STREAM             -> make RESULT               the stream anew
 *   blocking STREAM         -> blocking RESULT           the same, as one that waits for the legacy stream, which is stream 0
 *   linear BYTES            -> linear RESULT             cuMemAlloc; the allocation gets the next number, from 0
 *   async BYTES STREAM      -> async RESULT              cuMemAllocAsync; the same
 *   private COUNT STREAM    -> private RESULT            a pool, COUNT allocations of 1 MiB from it, and the pool is destroyed
 *   free NUMBER STREAM      -> free RESULT               cuMemFreeAsync
 *   free-all FROM STREAM    -> free-all RESULT           cuMemFreeAsync of all allocations from that number on
 *   now NUMBER              -> now RESULT                cuMemFree
 *   pairs COUNT STREAM      -> pairs RESULT              COUNT times cuMemAllocAsync of 1 MiB and its cuMemFreeAsync
 *   spread COUNT            -> spread RESULT             the same, each pair in the next of streams 2 to 4
 *   block STREAM            -> block RESULT              the stream waits until `unblock`
 *   unblock                 -> unblock 0
 *   fill COUNT STREAM       -> fill RESULT               COUNT operations that do nothing
 *   sync STREAM, sync-all   -> ... RESULT
 *   info                    -> info FREE TOTAL RESULT
 *
 * RESULT is the first CUresult that is not success, as a number. `other COMMAND` has the second
 * thread do it; `start COMMAND` too, and answers nothing until `ended`, which gives the command's
 * own answer. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;
enum { STREAMS = 5, MOST = 4096 };

static void *context, *streams[STREAMS];
static dptr live[MOST], flag;
static volatile unsigned *flag_here;
static int allocations;
static unsigned blocks;

static int begin(void) {
    int device, result;
    void *at;
    if ((result = CALL("cuInit", (unsigned))(0))) return result;
    if ((result = CALL("cuDeviceGet", (int *, int))(&device, 0))) return result;
    if ((result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device))) return result;
    if ((result = CALL("cuCtxSetCurrent", (void *))(context))) return result;
    for (int i = 1; i < STREAMS; i++)
        if ((result = CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1))) return result;
    if ((result = CALL("cuMemHostAlloc", (void **, size_t, unsigned))(&at, 4096, 2))) return result;
    flag_here = at;
    *flag_here = 0;
    return CALL("cuMemHostGetDevicePointer_v2", (dptr *, void *, unsigned))(&flag, at, 0);
}

static int end(int stream) {
    void *graph = NULL;
    int result = CALL("cuStreamEndCapture", (void *, void **))(streams[stream], &graph);
    if (graph) CALL("cuGraphDestroy", (void *))(graph);
    return result;
}

static int begin_to(int mode, int stream) {
    void *graph;
    int result = CALL("cuGraphCreate", (void **, unsigned))(&graph, 0);
    if (result) return result;
    return CALL("cuStreamBeginCaptureToGraph", (void *, void *, const void *, const void *, size_t, int))(streams[stream], graph, NULL, NULL, 0, mode);
}

static int follow(int from, int to) {
    void *event;
    int result = CALL("cuEventCreate", (void **, unsigned))(&event, 2);
    if (!result) result = CALL("cuEventRecord", (void *, void *))(event, streams[from]);
    if (!result) result = CALL("cuStreamWaitEvent", (void *, void *, unsigned))(streams[to], event, 0);
    return result;
}

static int alloc_async(dptr *at, size_t bytes, int stream) {
    return CALL("cuMemAllocAsync", (dptr *, size_t, void *))(at, bytes, streams[stream]);
}

static int free_async(dptr at, int stream) { return CALL("cuMemFreeAsync", (dptr, void *))(at, streams[stream]); }

static int pairs(int count, int stream) {
    dptr at;
    int result = 0;
    for (int i = 0; i < count && !result; i++) {
        result = alloc_async(&at, 1 << 20, stream);
        if (!result) result = free_async(at, stream);
    }
    return result;
}

static int spread(int count) {
    int result = 0;
    for (int i = 0; i < count && !result; i++) result = pairs(1, 2 + i % (STREAMS - 2));
    return result;
}

static int private(int count, int stream) {
    struct { int type, handles, where, id; void *security; size_t max; unsigned char rest[56]; } props;
    void *pool;
    memset(&props, 0, sizeof props);
    props.type = props.where = 1;
    int result = CALL("cuMemPoolCreate", (void **, const void *))(&pool, &props);
    for (int i = 0; i < count && !result; i++) {
        result = CALL("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(&live[allocations], 1 << 20, pool, streams[stream]);
        if (!result) allocations++;
    }
    return result ? result : CALL("cuMemPoolDestroy", (void *))(pool);
}

static int block(int stream) {
    blocks = *flag_here + 1;
    return CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(streams[stream], flag, blocks, 0);
}

static int fill(int count, int stream) {
    int result = 0;
    for (int i = 0; i < count && !result; i++) {
        void *event;
        result = CALL("cuEventCreate", (void **, unsigned))(&event, 2);
        if (!result) result = CALL("cuEventRecord", (void *, void *))(event, streams[stream]);
    }
    return result;
}

static int added(int result) {
    if (!result) allocations++;
    return result;
}

static int run(const char *command, long long a, long long b) {
    int status = 9, mode = (int)a;
    if (!strcmp(command, "init")) return begin();
    if (!strcmp(command, "begin")) return CALL("cuStreamBeginCapture_v2", (void *, int))(streams[b], mode);
    if (!strcmp(command, "begin-to")) return begin_to(mode, (int)b);
    if (!strcmp(command, "end")) return end((int)a);
    if (!strcmp(command, "fork") || !strcmp(command, "join")) return follow((int)a, (int)b);
    if (!strcmp(command, "status")) {
        int result = CALL("cuStreamIsCapturing", (void *, int *))(streams[a], &status);
        return result ? result : status;
    }
    if (!strcmp(command, "mode")) return CALL("cuThreadExchangeStreamCaptureMode", (int *))(&mode);
    if (!strcmp(command, "destroy")) return CALL("cuStreamDestroy_v2", (void *))(streams[a]);
    if (!strcmp(command, "make")) return CALL("cuStreamCreate", (void **, unsigned))(&streams[a], 1);
    if (!strcmp(command, "blocking")) return CALL("cuStreamCreate", (void **, unsigned))(&streams[a], 0);
    if (!strcmp(command, "linear")) return added(CALL("cuMemAlloc_v2", (dptr *, size_t))(&live[allocations], a));
    if (!strcmp(command, "async")) return added(alloc_async(&live[allocations], a, (int)b));
    if (!strcmp(command, "free")) return free_async(live[a], (int)b);
    if (!strcmp(command, "free-all")) {
        int result = 0;
        for (int i = (int)a; i < allocations && !result; i++) result = free_async(live[i], (int)b);
        return result;
    }
    if (!strcmp(command, "private")) return private((int)a, (int)b);
    if (!strcmp(command, "now")) return CALL("cuMemFree_v2", (dptr))(live[a]);
    if (!strcmp(command, "pairs")) return pairs((int)a, (int)b);
    if (!strcmp(command, "spread")) return spread((int)a);
    if (!strcmp(command, "block")) return block((int)a);
    if (!strcmp(command, "unblock")) return *flag_here = blocks, 0;
    if (!strcmp(command, "fill")) return fill((int)a, (int)b);
    if (!strcmp(command, "sync")) return CALL("cuStreamSynchronize", (void *))(streams[a]);
    if (!strcmp(command, "sync-all")) return CALL("cuCtxSynchronize", (void))();
    return -1;
}

static void answer(char *line, char *said, size_t room) {
    char command[64];
    long long a = 0, b = 0;
    if (sscanf(line, "%63s %lld %lld", command, &a, &b) < 1) command[0] = 0;
    if (!strcmp(command, "info")) {
        size_t free = 0, total = 0;
        int result = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
        snprintf(said, room, "info %zu %zu %d", free, total, result);
    } else {
        snprintf(said, room, "%s %d", command, run(command, a, b));
    }
}

/* The second thread: one job at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char job[256], said[256];
static enum { IDLE, GIVEN, DONE } state;

static void *second(void *unused) {
    int set = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (state != GIVEN) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        if (!set) CALL("cuCtxSetCurrent", (void *))(context), set = 1;
        answer(job, said, sizeof said);
        pthread_mutex_lock(&lock);
        state = DONE;
        pthread_cond_broadcast(&changed);
    }
    return unused;
}

static void give(const char *line) {
    pthread_mutex_lock(&lock);
    snprintf(job, sizeof job, "%s", line);
    state = GIVEN;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const char *ended(void) {
    pthread_mutex_lock(&lock);
    while (state != DONE) pthread_cond_wait(&changed, &lock);
    state = IDLE;
    pthread_mutex_unlock(&lock);
    return said;
}

int main(void) {
    char line[256], here[256];
    pthread_t thread;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_create(&thread, NULL, second, NULL);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "other ", 6)) {
            give(line + 6);
            printf("%s\n", ended());
        } else if (!strncmp(line, "start ", 6)) {
            give(line + 6);
        } else if (!strncmp(line, "ended", 5)) {
            printf("%s\n", ended());
        } else {
            answer(line, here, sizeof here);
            printf("%s\n", here);
        }
    }
    return 0;
}
