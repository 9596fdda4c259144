/* A CUDA driver program in which no detached thread can be started, as where a limit is reached of
 * processes or of memory; the driver's are not detached. It launches a kernel, waits for it, and ends. Its first exit handler, which is called
 * last, says how often the end has slept. It knows nothing of gpushare.
 *
 *   usage: threadless [threads]     with an argument they can be started
 *
 * Prints the first CUresult that is not success, and that number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/driver.h"

static int threads, result = -1;
static long before;

/* Whoever looks for the function finds this one first. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument) {
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    if (!threads && state == PTHREAD_CREATE_DETACHED) return EAGAIN;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, main, argument);
}

static long slept(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void say(void) {
    printf("%d %ld\n", result, slept() - before);
    fflush(stdout);
}

static int work(void) {
    void *context, *module, *function;
    uint64_t ns = 1000;
    void *parameters[] = {&ns};
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin"));
    TRY(CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    return CALL("cuCtxSynchronize", (void))();
}

int main(int argc, char **argv) {
    (void)argv;
    threads = argc > 1;
    atexit(say);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    result = work();
    before = slept();
    return 0;
}
