/* A CUDA driver program of which one thread launches on two devices. It answers one command a line
 * on its standard input and knows nothing of gpushare.
 *
 *   init                 -> init RESULT             cuInit; a primary context and a stream on devices 0 and 1
 *   launch D COUNT NS    -> launch RESULT           COUNT kernels of NS nanoseconds on device D
 *   turns D COUNT NS     -> turns RESULT            the same on the other device, and at once one kernel on device D
 *   sync D               -> sync RESULT
 *   query D              -> query RESULT            600 while there is work
 *
 * RESULT is the first CUresult that is not success, as a number. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static struct {
    void *context, *function, *stream;
} devices[2];

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
        printf("%s %d\n", word, result);
    }
    return 0;
}
