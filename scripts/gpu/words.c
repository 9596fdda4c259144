/* What the driver answers to stream memory operations on words in managed memory, and beside them on words in plain memory:
 * NVIDIA's documents say that none takes pointers to managed memory. JSON on standard output, each a CUresult as a number;
 * -1 where the driver has no such function. */
#include "driver.h"

static void *stream;
static int first = 1;

static void *found(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}

static void say(const char *memory, const char *what, int result) {
    printf("%s\"%s of %s memory\": %d", first ? "{" : ", ", what, memory, result);
    first = 0;
}

static void ask(const char *memory, dptr at) {
    int (*write)(void *, dptr, unsigned, unsigned) = found("cuStreamWriteValue32_v2");
    int (*wait)(void *, dptr, unsigned, unsigned) = found("cuStreamWaitValue32_v2");
    /* The word is 7 by then, so that the wait ends. */
    CU("cuMemsetD32_v2", (dptr, unsigned, size_t), (at, 7, 1));
    say(memory, "a write", write ? write(stream, at, 7, 0) : -1);
    say(memory, "a wait", wait ? wait(stream, at, 7, 0) : -1);
    /* A driver may say only here that it took neither; then it says so to all that follows. */
    int (*finish)(void *) = found("cuStreamSynchronize");
    say(memory, "a synchronization behind them", finish ? finish(stream) : -1);
}

int main(void) {
    dptr plain, managed;
    make_context();
    CU("cuStreamCreate", (void **, unsigned), (&stream, 1));
    CU("cuMemAlloc_v2", (dptr *, size_t), (&plain, 4 << 20));
    CU("cuMemAllocManaged", (dptr *, size_t, unsigned), (&managed, 4 << 20, 1));
    ask("plain", plain);
    ask("managed", managed);
    printf("}\n");
    return 0;
}
