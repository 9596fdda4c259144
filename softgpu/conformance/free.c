// What freeing memory waits for: work of another stream, which does not touch it and ends when the program says so.
#include "facts.h"

#include <pthread.h>
#include <unistd.h>

// A call that has not returned after this time counts as waiting (us).
enum { QUIET = 300000, STEP = 1000 };

static handle context, holding, array;
static address memory;
static void *pinned;
static volatile uint32_t *word;
static unsigned number;
static volatile int ended;
static result answer;

static result linear(void) { return CU(cuMemFree_v2, memory); }
static result of_an_array(void) { return CU(cuArrayDestroy, array); }
static result of_the_host(void) { return CU(cuMemFreeHost, pinned); }

static void *free_it(void *body) {
    CU(cuCtxSetCurrent, context);
    answer = ((result(*)(void))body)();
    ended = 1;
    return NULL;
}

// Whether a free waits for the stream that holds.
static void waits(const char *fact, result (*body)(void)) {
    pthread_t thread;
    char then[64];
    ended = 0;
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, holding, (address)(uintptr_t)word, ++number, 0u));
    pthread_create(&thread, NULL, free_it, (void *)body);
    for (int us = 0; us < QUIET && !ended; us += STEP) usleep(STEP);
    say_bool(fact, !ended);
    *word = number;
    pthread_join(thread, NULL);
    snprintf(then, sizeof then, "%s_then", fact);
    say_result(then, answer);
    must("cuStreamSynchronize", CU(cuStreamSynchronize, holding));
}

static void linear_waits(const char *fact, size_t bytes) {
    must("cuMemAlloc", CU(cuMemAlloc_v2, &memory, bytes));
    waits(fact, linear);
}

void free_facts(void) {
    struct { size_t width, height; int format; unsigned channels; } shape = {1024, 1024, 0x20, 1};
    handle other = NULL;
    context = begin();
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    must("cuStreamCreate", CU(cuStreamCreate, &holding, 1u));
    *word = 0;
    linear_waits("of_512_bytes_waits", 512);
    linear_waits("of_2_mib_waits", 2 << 20);
    linear_waits("of_64_mib_waits", 64 << 20);
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &memory, (size_t)2 << 20, 1u));
    waits("of_managed_memory_waits", linear);
    must("cuArrayCreate", CU(cuArrayCreate_v2, &array, &shape));
    waits("of_an_array_waits", of_an_array);
    must("cuMemHostAlloc", CU(cuMemHostAlloc, &pinned, (size_t)4096, 0u));
    waits("of_pinned_memory_waits", of_the_host);
    must("cuMemAlloc", CU(cuMemAlloc_v2, &memory, (size_t)2 << 20));
    must("cuCtxCreate", CU(cuCtxCreate_v2, &other, 0u, 0));
    must("cuStreamCreate", CU(cuStreamCreate, &holding, 1u));
    waits("beside_another_contexts_work_waits", linear);
}
