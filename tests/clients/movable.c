/* A CUDA driver program that allocates, fills, checks and frees memory while it answers one command a
 * line on its standard input. It knows nothing of gpushare. I is a slot, 0 to 15.
 *
 *   init [MODE]       -> init RESULT        cuInit, device 0 and its primary context, or with 1 a context of its own
 *   alloc I BYTES     -> alloc RESULT
 *   fill I SEED       -> fill RESULT        a pattern of SEED, by a copy from the host
 *   set I VALUE       -> set RESULT         32-bit VALUEs, by a kernel
 *   check I SEED      -> check WRONG        bytes that are not the pattern's, or 1000000000 and the driver's error
 *   free I            -> free RESULT
 *   later I           -> later RESULT       cuMemFreeAsync in stream 1
 *   twice I           -> twice A B          cuMemFree in two threads at once: the smaller of the results, and the other
 *   same I            -> same SAME          whether the slot has the address that it had first
 *   range I OFFSET    -> range OFFSET SIZE  cuMemGetAddressRange: how far before that the allocation begins, and its size
 *   about I           -> about CONTEXT START SIZE SYNC LEGACY   attributes of a pointer in its middle: 1 if as of plain memory
 *   facts I OFFSET    -> facts ATTRIBUTE=RESULT:VALUE,RESULT:VALUE... range=RESULT:BEFORE,SIZE    each attribute so many
 *                                           bytes behind the slot's address, alone and in a list, and cuMemGetAddressRange
 *   wait I OFFSET     -> wait RESULT        SYNC_MEMOPS on, so many bytes behind the slot's address
 *   waits I           -> waits SYNC RESULT  SYNC_MEMOPS, of a pointer at its beginning
 *   at I OFFSET       -> at START SIZE ONE TWO THREE         so many bytes behind the slot's address: how far before that an
 *                                           allocation begins, its size, and the results of cuMemGetAddressRange,
 *                                           cuPointerGetAttribute and cuPointerGetAttributes
 *   differ I J        -> differ DIFFER      whether the numbers (BUFFER_ID) of two slots differ, asked one by one and in a list
 *   number I          -> number NUMBER
 *   inner I OFFSET    -> inner RESULT       cuMemFree so many bytes behind the slot's address
 *   pitch I W H E     -> pitch RESULT       cuMemAllocPitch: H rows of W bytes, elements of E
 *   row               -> row PITCH          what that answered
 * pools; P is a pool, 0 the device's own, 1 to 3; S a stream, 0 the legacy one, 1 and 2:
 *   pool P KINDS MOST -> pool RESULT        cuMemPoolCreate, of handle types KINDS and at most so many bytes
 *   async I BYTES S   -> async RESULT       cuMemAllocAsync
 *   from I BYTES S P  -> from RESULT        cuMemAllocFromPoolAsync
 *   later I S         -> later RESULT       cuMemFreeAsync; in stream 1 without S
 *   beside I BYTES S  -> beside 0           cuMemAllocAsync in a thread of its own, named beside
 *   joined            -> joined RESULT      that thread's result, once it has one
 *   level P           -> level RESERVED USED RHIGH UHIGH THRESHOLD RESULT    attributes
 *   put P A V         -> put RESULT         cuMemPoolSetAttribute of a 64-bit one
 *   rule P A V        -> rule RESULT        of a 32-bit one
 *   trim P KEEP, close P, use P -> WORD RESULT    cuMemPoolTrimTo, cuMemPoolDestroy, cuDeviceSetMemPool
 *   grant P FLAGS     -> grant RESULT       cuMemPoolSetAccess for device 1
 *   of I              -> of P CONTEXT       which pool a slot is of, 9 for none, and whether it has a context
 *   sync S            -> sync RESULT
 *   hold S, release   -> hold RESULT        stream S waits until then
 * streams and contexts that go; N is a stream, 0 to 7:
 *   make N FLAGS, unmake N -> WORD RESULT   cuStreamCreate, cuStreamDestroy
 *   word              -> word RESULT        a word in memory, 0
 *   awaits N, writes N -> WORD RESULT       stream N waits until the word is 1, or makes it 1
 *   ownawaits         -> ownawaits RESULT   the own default stream of a thread waits, which then does nothing more
 *   captures N MODE, ends N -> WORD RESULT  a capture of stream N
 *   freeing I         -> freeing 0          cuMemFree in a thread of its own, named frees
 *   cancelling I      -> cancelling 0       the same in a thread that has been cancelled, and comes to no cancellation point before
 *   freed             -> freed RESULT       of that, -1 as long as there is none
 *   cancelled         -> cancelled YES      whether it ended as cancelled
 *   releasing         -> releasing RESULT   retains the primary context once more, and releases it in a thread of its own
 *   released          -> released RESULT    of that, -1 as long as there is none
 *   swaps             -> swaps RESULT       what follows is done in the other of two contexts on the device; the first time makes it
 *   another, noother  -> WORD RESULT        a second context on the device, in which a stream waits for the word; its end, in that thread
 *   meets I J         -> meets MEETS        whether two slots have an address in common
 *   refuses I         -> refuses A B C D E F G    cuMemMap of other memory there, cuMemUnmap, cuMemSetAccess, cuMemGetAccess,
 *                                           cuMemRetainAllocationHandle, cuMemAddressFree, and with the slot's address for a handle
 *                                           cuMemGetAllocationPropertiesFromHandle
 *   front I BYTES     -> front RESULT       2 MiB of the program's own mapping, and slot I allocated directly behind them
 *   joins I           -> joins JOINS        whether it is directly behind them
 *   reaches I HALF    -> reaches A B C D E F G    of a range from there to the end of slot I, or with HALF to its middle:
 *                                           cuMemSetAccess, cuMemUnmap, cuMemMap, cuMemAddressFree, cuMemAdvise,
 *                                           cuMemRangeGetAttribute, cuMemGetHandleForAddressRange
 *   behind            -> behind RESULT      that mapping alone: its rights, and its end
 *   discards I        -> discards A B C D E F    cuMemPrefetchBatchAsync, cuMemDiscardBatchAsync,
 *                                           cuMemDiscardAndPrefetchBatchAsync of slot I and managed memory, then of that alone
 *   lies I            -> lies A B C D       by cuMemGetLocationInfo, the kind of place or an error below 0: slot I, managed
 *                                           memory never touched, on the device, at home
 *   shares I          -> shares A B         cuIpcGetMemHandle, cuMemGetHandleForAddressRange
 *   binds I           -> binds A B C        cuMulticastBindAddr, the same of CUDA 13.1, cuLogicalEndpointBindAddr
 *   begin MODE, end   -> begin RESULT       a capture of stream 1
 *   texture I         -> texture RESULT     a texture over slot I
 *   hand I J V        -> hand RESULT        a graph made by hand, which sets slot I to VALUEs and copies it to slot J
 *   redirect J        -> redirect RESULT    that graph copies to slot J from now on
 *   image             -> image RESULT       loads a module and unloads it
 *   outlasts I KIND   -> outlasts RESULT    work that takes a while (0 a kernel, 1 a host function, 2 a wait for a value, 3 a
 *                                           graph), cuMemFree of slot I, and whether that work is complete
 *   pairs N           -> pairs RESULT       cuMemAlloc of 512 bytes and cuMemFree, N times
 *   graph I VALUE     -> graph RESULT       captures a kernel that sets slot I to VALUEs
 *   launch            -> launch RESULT      that graph, and waits
 *   storm N SMALL     -> storm 0            N threads allocate, copy, launch, capture, check and free at random; with
 *                                           SMALL one allocation of little more than 1 MiB or of less than 64 KiB each
 *   go N              -> go CALLS WRONG RESULT      as state; with SMALL they do so much more, and wait for the next
 *   went N            -> went CALLS WRONG RESULT    the same, once they have done some of it
 *   state             -> state CALLS WRONG RESULT   what they have done, found wrong, and the first error
 *   calm              -> calm WRONG RESULT  they have stopped
 *   churn COUNT N     -> churn RESULT       COUNT threads that each allocate and free 2 MiB N times
 *   destroy           -> destroy RESULT     the context, with all that is in it
 *   info              -> info FREE RESULT   cuMemGetInfo
 * memory that does not move:
 *   pitched BYTES, array BYTES, pooled BYTES, managed BYTES -> WORD RESULT
 *   touched BYTES     -> touched RESULT     managed, and a memset brings it to the device
 *   handle BYTES      -> handle RESULT      cuMemCreate
 *   twofold BYTES MORE -> twofold RESULT    the same, mapped at two addresses; with MORE device 1 has rights there too
 *   tiles BYTES       -> tiles RESULT       the same for tiles of sparse arrays
 *   share             -> share RESULT       exports the last handle
 *   drops             -> drops RESULT       cuMemRelease of the last handle
 * another device:
 *   second            -> second RESULT      a context on device 1, for what follows
 *   reach, unreach    -> reach RESULT       that one may access the first one's memory, or no more
 *   across I VALUE    -> across RESULT      sets slot I to VALUEs by a kernel on device 1
 *   there I BYTES     -> there RESULT       as alloc, on device 1
 * while that context is current; LATER: by the asynchronous function, in a stream of its own:
 *   pull I VALUE LATER   -> pull WRONG RESULT     cuMemcpyDtoH: 32-bit words that are not VALUE
 *   push I VALUE LATER   -> push RESULT           cuMemcpyHtoD of VALUEs; LATER 2: the asynchronous one, behind work that takes a
 *                                                 while; 3: so of 4 bytes that are pinned
 *   stamp I VALUE HOW    -> stamp RESULT          cuMemsetD32, cuMemsetD32Async or cuMemsetD2D32 of VALUEs
 *   carry I J HOW        -> carry RESULT          slot J to slot I: cuMemcpyDtoD, cuMemcpyDtoDAsync, cuMemcpy, cuMemcpy2DUnaligned
 *                                                 or cuMemcpy2DAsync
 *   queue I VALUE        -> queue RESULT          the stream waits, sets slot I to VALUEs and copies one to the host
 *   status               -> status RESULT         cuStreamQuery
 *   goes                 -> goes VALUE RESULT     it goes on, and what it copied
 *   ended                -> ended RESULT          cuStreamDestroy
 *   recorded I J         -> recorded RESULT END   a capture of cuMemcpyDtoDAsync of slot J to slot I */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/driver.h"
#include "common/bytes.h"

typedef unsigned long long dptr;

static void *context, *kernel, *stream, *exec;
static dptr slots[16], firsts[16];
static size_t sizes[16];
static size_t row;
static int own_context;

static int current(void) { return CALL("cuCtxSetCurrent", (void *))(context); }

/* The primary context of device 0, or one of its own. */
static int open_context(int own) {
    int device;
    void *module;
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    if (own) TRY(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&context, 0, device));
    else TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(current());
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&kernel, module, "fill");
}

static int begin(int own) {
    own_context = own;
    TRY(CALL("cuInit", (unsigned))(0));
    return open_context(own);
}

static int set(dptr at, uint64_t count, uint32_t value, void *in) {
    void *parameters[] = {&at, &count, &value};
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                   void **))(kernel, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

#include "movable/storm.h"
#include "movable/pools.h"
#include "movable/small.h"
#include "movable/kept.h"
#include "movable/going.h"

static int array(size_t bytes) {
    struct { size_t width, height; int format; unsigned channels; } shape = {bytes / 4096, 1024, 0x20, 1};
    void *made;
    return CALL("cuArrayCreate_v2", (void **, void *))(&made, &shape);
}

static struct { int type, types; int place, id; void *meta; unsigned char flags[8]; } memory = {1, 1, 1, 0, NULL, {0}};
static unsigned long long last_handle;

static int handle(size_t bytes) {
    return CALL("cuMemCreate", (unsigned long long *, size_t, void *, unsigned long long))(&last_handle, bytes, &memory, 0);
}

/* Memory mapped at two addresses. */
static int twofold(size_t bytes, int more) {
    struct { int place, id, flags; } access[] = {{1, 0, 3}, {1, 1, 3}};
    TRY(handle(bytes));
    for (int n = 0; n < 2; n++) {
        dptr at;
        TRY(CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, unsigned long long))(&at, bytes, 0, 0, 0));
        TRY(CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(at, bytes, 0, last_handle, 0));
        TRY(CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(at, bytes, access, more ? 2 : 1));
    }
    return 0;
}

static int share(void) {
    int file = -1;
    return CALL("cuMemExportToShareableHandle", (void *, unsigned long long, int, unsigned long long))(&file, last_handle, 1, 0);
}

static void *other_context, *other_kernel;

static int second(void) {
    void *module;
    TRY(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&other_context, 0, 1));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&other_kernel, module, "fill"));
    return current();
}

static int reach(int may) {
    TRY(CALL("cuCtxSetCurrent", (void *))(other_context));
    int result = may ? CALL("cuCtxEnablePeerAccess", (void *, unsigned))(context, 0) : CALL("cuCtxDisablePeerAccess", (void *))(context);
    int back = current();
    return result ? result : back;
}

static int across(int i, uint32_t value) {
    void *own = kernel;
    TRY(CALL("cuCtxSetCurrent", (void *))(other_context));
    kernel = other_kernel;
    int result = set(slots[i], sizes[i] / 4, value, NULL);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(NULL);
    kernel = own;
    int back = current();
    return result ? result : back;
}

static int there(int i, size_t bytes) {
    TRY(CALL("cuCtxSetCurrent", (void *))(other_context));
    int result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&slots[i], bytes);
    sizes[i] = bytes;
    int back = current();
    return result ? result : back;
}

static void about(int i) {
    dptr middle = slots[i] + sizes[i] / 2, start = 0;
    void *of = NULL;
    size_t size = 0;
    int sync = 0, legacy = 1;
    int (*ask)(void *, int, dptr) = (int (*)(void *, int, dptr))symbol("cuPointerGetAttribute");
    int list[5] = {1, 11, 12, 6, 10};
    void *places[5] = {&of, &start, &size, &sync, &legacy};
    int single = ask(&of, 1, middle) || of != context || ask(&start, 11, middle) || start != slots[i] || ask(&size, 12, middle)
                 || size != sizes[i];
    of = NULL, start = 0, size = 0;
    int result = CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(5, list, places, middle);
    printf("about %d %d %d %d %d\n", !result && !single && of == context, start == slots[i], size == sizes[i], sync, legacy);
}

static void refuses(int i) {
    struct { int type, id; } place = {1, 0};
    struct { int type, id; unsigned flags; } access = {1, 0, 3};
    unsigned long long other = 0, handle = 0, flags = 0, prop[16];
    CALL("cuMemCreate", (unsigned long long *, size_t, void *, unsigned long long))(&other, 2 << 20, &memory, 0);
    printf("refuses %d %d %d %d %d %d %d\n",
           CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(slots[i], 2 << 20, 0, other, 0),
           CALL("cuMemUnmap", (dptr, size_t))(slots[i], sizes[i]),
           CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(slots[i], sizes[i], &access, 1),
           CALL("cuMemGetAccess", (unsigned long long *, void *, dptr))(&flags, &place, slots[i]),
           CALL("cuMemRetainAllocationHandle", (void *, void *))(&handle, (void *)(uintptr_t)slots[i]),
           CALL("cuMemAddressFree", (dptr, size_t))(slots[i], sizes[i]),
           CALL("cuMemGetAllocationPropertiesFromHandle", (void *, unsigned long long))(prop, slots[i]));
    CALL("cuMemRelease", (unsigned long long))(other);
}

#include "movable/across.h"
#include "movable/front.h"
#include "movable/facts.h"

static void shares(int i) {
    unsigned long long handle = 0;
    char ipc[64];
    printf("shares %d %d\n", CALL("cuIpcGetMemHandle", (void *, dptr))(ipc, slots[i]),
           CALL("cuMemGetHandleForAddressRange", (void *, dptr, size_t, int, unsigned long long))(&handle, slots[i], sizes[i], 1, 0));
}

static void binds(int i) {
    void *at = (void *)(uintptr_t)slots[i];
    printf("binds %d %d %d\n", CALL("cuMulticastBindAddr", (uint64_t, size_t, dptr, size_t, uint64_t))(1, 0, slots[i], sizes[i], 0),
           CALL("cuMulticastBindAddr_v2", (uint64_t, int, size_t, dptr, size_t, uint64_t))(1, 0, 0, slots[i], sizes[i], 0),
           CALL("cuLogicalEndpointBindAddr", (unsigned, int, uint64_t, void *, uint64_t, uint64_t))(1, 0, 0, at, sizes[i], 0));
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0, c = 0, d = 0;
        int error = 0;
        if (sscanf(line, "%31s %llu %llu %llu %llu", name, &a, &b, &c, &d) < 1) continue;
        int i = a % 16;
        if (!strcmp(name, "init")) printf("init %d\n", begin(a));
        else if (!strcmp(name, "alloc")) {
            sizes[i] = b;
            int result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&slots[i], b);
            firsts[i] = slots[i];
            printf("alloc %d\n", result);
        } else if (!strcmp(name, "fill")) printf("fill %d\n", fill_bytes(slots[i], sizes[i], b));
        else if (!strcmp(name, "set")) {
            int result = set(slots[i], sizes[i] / 4, b, stream);
            printf("set %d\n", result);
        } else if (!strcmp(name, "check")) {
            long bad = check_bytes(slots[i], sizes[i], b, NULL, &error);
            printf("check %ld\n", error ? 1000000000L + error : bad);
        } else if (!strcmp(name, "values")) {
            uint32_t value = b;
            long bad = check_bytes(slots[i], sizes[i], 0, &value, &error);
            printf("values %ld\n", error ? 1000000000L + error : bad);
        } else if (!strcmp(name, "free")) printf("free %d\n", CALL("cuMemFree_v2", (dptr))(slots[i]));
        else if (!strcmp(name, "inner")) printf("inner %d\n", CALL("cuMemFree_v2", (dptr))(slots[i] + b));
        else if (!strcmp(name, "at")) at(i, b);
        else if (!strcmp(name, "number")) printf("number %llu\n", number(i));
        else if (!strcmp(name, "differ")) printf("differ %d\n", number(i) && number(b % 16) && number(i) != number(b % 16));
        else if (!strcmp(name, "waits")) {
            int on = 9;
            int result = CALL("cuPointerGetAttribute", (void *, int, dptr))(&on, 6, slots[i]);
            printf("waits %d %d\n", on, result);
        } else if (!strcmp(name, "pitch")) {
            row = 0;
            printf("pitch %d\n", pitch(i, b, c, d, &row));
        } else if (!strcmp(name, "row")) printf("row %zu\n", row);
        else if (!strcmp(name, "later")) {
            void *in = sscanf(line, "%*s %*s %llu", &b) == 1 ? stream_of(b) : stream;
            printf("later %d\n", CALL("cuMemFreeAsync", (dptr, void *))(slots[i], in));
        } else if (pool_command(name, i, (unsigned long long[]){a, b, c, d})) continue;
        else if (going_command(name, i, (unsigned long long[]){a, b, c, d})) continue;
        else if (across_command(name, i, (unsigned long long[]){a, b, c, d})) continue;
        else if (!strcmp(name, "same")) printf("same %d\n", slots[i] == firsts[i]);
        else if (!strcmp(name, "range")) {
            dptr base = 0;
            size_t size = 0;
            error = CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&base, &size, slots[i] + b);
            printf("range %llu %zu\n", error ? 1000000000ull + error : slots[i] + b - base, size);
        } else if (!strcmp(name, "about")) about(i);
        else if (!strcmp(name, "wait")) {
            int on = 1;
            printf("wait %d\n", CALL("cuPointerSetAttribute", (const void *, int, dptr))(&on, 6, slots[i] + b));
        } else if (!strcmp(name, "refuses")) refuses(i);
        else if (!strcmp(name, "shares")) shares(i);
        else if (!strcmp(name, "binds")) binds(i);
        else if (!strcmp(name, "facts")) facts(i, b);
        else if (!strcmp(name, "front")) printf("front %d\n", make_front(i, b));
        else if (!strcmp(name, "joins")) printf("joins %d\n", front + (2 << 20) == slots[i]);
        else if (!strcmp(name, "reaches")) reaches(i, b);
        else if (!strcmp(name, "discards")) discards(i);
        else if (!strcmp(name, "lies")) lies(i);
        else if (!strcmp(name, "behind")) printf("behind %d\n", end_front());
        else if (!strcmp(name, "begin")) printf("begin %d\n", CALL("cuStreamBeginCapture_v2", (void *, int))(stream, a));
        else if (!strcmp(name, "end")) {
            void *graph;
            printf("end %d\n", CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
        } else if (!strcmp(name, "texture")) printf("texture %d\n", texture(i));
        else if (!strcmp(name, "hand")) printf("hand %d\n", by_hand(i, b % 16, c));
        else if (!strcmp(name, "redirect")) printf("redirect %d\n", redirect(i));
        else if (!strcmp(name, "outlasts")) printf("outlasts %d\n", outlasts(i, b));
        else if (!strcmp(name, "image")) {
            void *module;
            int result = CALL("cuModuleLoadData", (void **, const void *))(&module, "any image");
            printf("image %d\n", result ? result : CALL("cuModuleUnload", (void *))(module));
        } else if (!strcmp(name, "pairs")) {
            dptr at;
            while (!error && a--) {
                error = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 512);
                if (!error) error = CALL("cuMemFree_v2", (dptr))(at);
            }
            printf("pairs %d\n", error);
        } else if (!strcmp(name, "graph")) printf("graph %d\n", graph_of(slots[i], sizes[i] / 4, b, stream, &exec));
        else if (!strcmp(name, "launch")) {
            int result = CALL("cuGraphLaunch", (void *, void *))(exec, stream);
            if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
            printf("launch %d\n", result);
        } else if (!strcmp(name, "storm")) {
            stopping = 0;
            failed = 0;
            worker_count = a;
            small = b;
            for (int n = 0; n < worker_count; n++) pthread_create(&workers[n], NULL, work, (void *)(uintptr_t)n);
            puts("storm 0");
        } else if (!strcmp(name, "state")) printf("state %ld %ld %d\n", done, wrong, failed);
        else if (!strcmp(name, "go")) {
            allow(a);
            printf("go %ld %ld %d\n", done, wrong, failed);
        } else if (!strcmp(name, "went")) {
            long before = done;
            allow(a);
            while (done == before && !failed) usleep(100);
            printf("went %ld %ld %d\n", done, wrong, failed);
        } else if (!strcmp(name, "info")) {
            size_t left = 0, total = 0;
            int result = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&left, &total);
            printf("info %zu %d\n", left, result);
        } else if (!strcmp(name, "pitched")) {
            dptr at;
            size_t pitch;
            printf("pitched %d\n", CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned))(&at, &pitch, 1024, a / 1024, 4));
        } else if (!strcmp(name, "array")) printf("array %d\n", array(a));
        else if (!strcmp(name, "pooled")) {
            dptr at;
            int result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, a, stream);
            printf("pooled %d\n", result ? result : CALL("cuStreamSynchronize", (void *))(stream));
        } else if (!strcmp(name, "managed")) {
            dptr at;
            printf("managed %d\n", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, a, 1));
        } else if (!strcmp(name, "touched")) {
            dptr at;
            int result = CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, a, 1);
            if (!result) result = CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(at, 1, a);
            printf("touched %d\n", result ? result : CALL("cuCtxSynchronize", (void))());
        } else if (!strcmp(name, "handle")) printf("handle %d\n", handle(a));
        else if (!strcmp(name, "twofold")) printf("twofold %d\n", twofold(a, b));
        else if (!strcmp(name, "tiles")) {
            memory.flags[2] = 1;
            printf("tiles %d\n", handle(a));
            memory.flags[2] = 0;
        } else if (!strcmp(name, "share")) printf("share %d\n", share());
        else if (!strcmp(name, "drops")) printf("drops %d\n", CALL("cuMemRelease", (unsigned long long))(last_handle));
        else if (!strcmp(name, "second")) printf("second %d\n", second());
        else if (!strcmp(name, "reach")) printf("reach %d\n", reach(1));
        else if (!strcmp(name, "unreach")) printf("unreach %d\n", reach(0));
        else if (!strcmp(name, "across")) printf("across %d\n", across(i, b));
        else if (!strcmp(name, "there")) printf("there %d\n", there(i, b));
        else if (!strcmp(name, "calm")) {
            stopping = 1;
            allow(0);
            for (int n = 0; n < worker_count; n++) pthread_join(workers[n], NULL);
            /* The pool gives back what was freed. */
            if (!failed) failed = CALL("cuCtxSynchronize", (void))();
            printf("calm %ld %d\n", wrong, failed);
        } else if (!strcmp(name, "churn")) printf("churn %d\n", churn(a, b));
        else if (!strcmp(name, "destroy")) printf("destroy %d\n", CALL("cuCtxDestroy_v2", (void *))(context));
        else return 4;
    }
    return 0;
}
