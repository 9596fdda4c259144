/* A CUDA driver program whose streams, contexts and captures cover the cases that marks behind its
 * work can meet. It answers one command a line on its standard input and knows nothing of gpushare.
 *
 *   init                 -> init RESULT             cuInit, device 0, its primary context; stream 0 is the legacy one
 *   make I FLAGS         -> make RESULT             stream I, 1 to 7
 *   hidden I             -> hidden RESULT           non-blocking stream I, made by the driver's function from its table of symbols
 *   launch I NS          -> launch RESULT           a kernel of NS nanoseconds in stream I
 *   own NS               -> own RESULT              the same in the own default stream of a thread, which then does nothing more
 *   await I              -> await RESULT            stream I waits for a value in memory
 *   write I              -> write RESULT            stream I writes it
 *   begin I MODE         -> begin RESULT            stream I captures; one kernel is recorded
 *   join I J             -> join RESULT             stream J joins the capture of stream I, by an event; one kernel is recorded
 *   end I J              -> end RESULT              stream J, if not 0, is joined back, and the capture ends with as many nodes as there should be
 *   release              -> release RESULT          the primary context is retained once more, and released
 *   destroy I            -> destroy RESULT          stream I
 *   query I              -> query RESULT            600 while there is work
 *   post I NS            -> post 0                  another thread launches a kernel of NS nanoseconds in stream I
 *   posted               -> posted DONE             whether the driver has taken it
 *
 * RESULT is the first CUresult that is not success, as a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/driver.h"

typedef unsigned long long dptr;

static void *context, *function, *streams[8], *event;
static dptr value;
static int nodes;
static atomic_int posted;

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static int current(void) { return CALL("cuCtxSetCurrent", (void *))(context); }

static int begin(void) {
    void *module;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0));
    TRY(current());
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&value, 4096));
    TRY(CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(value, 0, 4096));
    TRY(CALL("cuEventCreate", (void **, unsigned))(&event, 2));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int spin_by(const char *name, uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CALL(name, LAUNCH)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
static int spin(uint64_t ns, void *stream) { return spin_by("cuLaunchKernel", ns, stream); }

/* A function of a loaded library, read from its table of symbols, which ends where the next table begins. */
static void *in_table(const struct link_map *library, const char *name) {
    ElfW(Addr) from = 0, to = -1;
    const char *names = NULL;
    const ElfW(Dyn) *entry;
    for (entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) from = entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
    }
    for (entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
        int is_table = entry->d_tag == DT_STRTAB || entry->d_tag == DT_VERSYM || entry->d_tag == DT_GNU_HASH;
        if (is_table && entry->d_un.d_ptr > from && entry->d_un.d_ptr < to) to = entry->d_un.d_ptr;
    }
    for (const ElfW(Sym) *symbol = (void *)from; (ElfW(Addr))(symbol + 1) <= to; symbol++)
        if (symbol->st_value && !strcmp(names + symbol->st_name, name)) return (void *)(library->l_addr + symbol->st_value);
    return NULL;
}

/* A maker that no hook of anybody's sees. */
static int hidden(void **stream) {
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))in_table(driver, "cuStreamCreate");
    return create ? create(stream, 1) : 991;
}

static uint64_t own_ns;
static atomic_int own_result;

static void *own_stream(void *unused) {
    int result = current();
    if (!result) result = spin_by("cuLaunchKernel_ptsz", own_ns, NULL);
    own_result = result ? result : -1;
    for (;;) pause();
    return unused;
}

static int own(uint64_t ns) {
    pthread_t thread;
    own_ns = ns;
    own_result = 0;
    pthread_create(&thread, NULL, own_stream, NULL);
    pthread_detach(thread);
    while (!own_result) usleep(1000);
    return own_result < 0 ? 0 : own_result;
}

static uint64_t post_ns;

static void *post(void *stream) {
    int result = current();
    if (!result) result = spin(post_ns, stream);
    posted = result ? -result : 1;
    return NULL;
}

static int join(void *from, void *stream) {
    nodes++;
    TRY(CALL("cuEventRecord", (void *, void *))(event, from));
    TRY(CALL("cuStreamWaitEvent", (void *, void *, unsigned))(stream, event, 0));
    return spin(1000, stream);
}

static int end(void *stream, void *joined) {
    void *graph;
    size_t count = 0;
    if (joined) {
        TRY(CALL("cuEventRecord", (void *, void *))(event, joined));
        TRY(CALL("cuStreamWaitEvent", (void *, void *, unsigned))(stream, event, 0));
    }
    TRY(CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
    TRY(CALL("cuGraphGetNodes", (void *, void **, size_t *))(graph, NULL, &count));
    return (int)count == nodes ? 0 : 997;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0, two = 0;
        int result = 0;
        if (sscanf(line, "%31s %llu %llu", word, &one, &two) < 1) continue;
        void **stream = &streams[one % 8];
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("make")) result = CALL("cuStreamCreate", (void **, unsigned))(stream, (unsigned)two);
        else if (IS("hidden")) result = hidden(stream);
        else if (IS("launch")) result = spin(two, *stream);
        else if (IS("own")) result = own(one);
        else if (IS("await")) result = CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(*stream, value, 1, 0);
        else if (IS("write")) result = CALL("cuStreamWriteValue32_v2", (void *, dptr, unsigned, unsigned))(*stream, value, 1, 0);
        else if (IS("begin")) {
            nodes = 1;
            result = CALL("cuStreamBeginCapture_v2", (void *, int))(*stream, (int)two);
            if (!result) result = spin(1000, *stream);
        } else if (IS("join")) result = join(*stream, streams[two % 8]);
        else if (IS("end")) result = end(*stream, streams[two % 8]);
        else if (IS("release")) {
            void *same;
            result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&same, 0);
            if (!result) result = CALL("cuDevicePrimaryCtxRelease_v2", (int))(0);
        } else if (IS("destroy")) result = CALL("cuStreamDestroy_v2", (void *))(*stream);
        else if (IS("query")) result = CALL("cuStreamQuery", (void *))(*stream);
        else if (IS("post")) {
            pthread_t thread;
            posted = 0;
            post_ns = two;
            pthread_create(&thread, NULL, post, *stream);
            pthread_detach(thread);
        } else if (IS("posted")) result = posted;
        else result = 998;
        printf("%s %d\n", word, result);
    }
    return 0;
}
