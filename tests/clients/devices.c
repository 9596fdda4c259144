/* A CUDA driver program that launches on two devices: by one thread, or by one for each. It answers one command a line
 * on its standard input and knows nothing of gpushare.
 *
 *   init                 -> init RESULT             cuInit; a primary context and a stream on devices 0 and 1
 *   launch D COUNT NS    -> launch RESULT           COUNT kernels of NS nanoseconds on device D
 *   turns D COUNT NS     -> turns RESULT            the same on the other device, and at once one kernel on device D
 *   sync D               -> sync RESULT
 *   query D              -> query RESULT            600 while there is work
 *   work D NS            -> work 0                  a thread launches kernels of NS nanoseconds on device D until it is told to stop
 *   count D              -> count NUMBER            launches of that thread so far
 *   stop                 -> stop RESULT             all have stopped; the first error
 *
 * RESULT is the first CUresult that is not success, as a number. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static struct {
    void *context, *function, *stream;
    pthread_t worker;
    atomic_int works, failed, launched;
    uint64_t ns;
} devices[2];
static atomic_int stopping;

static int current(int device) { return CALL("cuCtxSetCurrent", (void *))(devices[device].context); }

static int begin(void) {
    TRY(CALL("cuInit", (unsigned))(0));
    for (int i = 0; i < 2; i++) {
        void *module;
        TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&devices[i].context, i));
        TRY(current(i));
        TRY(CALL("cuStreamCreate", (void **, unsigned))(&devices[i].stream, 1));
        TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
        TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&devices[i].function, module, "spin"));
    }
    return 0;
}

static int launch(int device, unsigned long long count, uint64_t ns) {
    void *parameters[] = {&ns};
    TRY(current(device));
    for (; count; count--)
        TRY(CALL("cuLaunchKernel", LAUNCH)(devices[device].function, 1, 1, 1, 1, 1, 1, 0, devices[device].stream, parameters, NULL));
    return 0;
}

static void *work(void *of) {
    int device = (int)(intptr_t)of;
    while (!stopping && !devices[device].failed) {
        devices[device].failed = launch(device, 1, devices[device].ns);
        devices[device].launched++;
    }
    return NULL;
}

static int begin_work(int device, uint64_t ns) {
    devices[device].works = 1;
    devices[device].ns = ns;
    return pthread_create(&devices[device].worker, NULL, work, (void *)(intptr_t)device);
}

static int stop(void) {
    stopping = 1;
    for (int i = 0; i < 2; i++)
        if (devices[i].works) pthread_join(devices[i].worker, NULL);
    return devices[0].failed ? devices[0].failed : devices[1].failed;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long device = 0, count = 0, ns = 0;
        int result = 998;
        if (sscanf(line, "%31s %llu %llu %llu", word, &device, &count, &ns) < 1) continue;
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("launch")) result = launch(device % 2, count, ns);
        else if (IS("turns")) {
            result = launch(!(device % 2), count, ns);
            if (!result) result = launch(device % 2, 1, ns);
        } else if (IS("sync")) result = CALL("cuStreamSynchronize", (void *))(devices[device % 2].stream);
        else if (IS("query")) result = CALL("cuStreamQuery", (void *))(devices[device % 2].stream);
        else if (IS("work")) result = begin_work(device % 2, count);
        else if (IS("count")) result = devices[device % 2].launched;
        else if (IS("stop")) result = stop();
        printf("%s %d\n", word, result);
    }
    return 0;
}
