/* A CUDA program with threads that launch and allocate all the time, and a main thread that answers
 * one command a line and queries only NVML. It knows nothing of gpushare.
 *
 *   init               -> init RESULT
 *   work NS            -> work 0               from now on a thread launches kernels of NS nanoseconds, another one allocates and frees
 *   count              -> count NUMBER         launches and allocations so far
 *   info               -> info RESULT USED     NVML's memory of the first device
 *   alloc BYTES        -> alloc RESULT
 *   load               -> load 0               a thread loads a module
 *   loaded             -> loaded RESULT        it has
 *   unload             -> unload RESULT
 *   stop               -> stop RESULT          the threads' first error
 *
 * At the end of the input it ends, whatever its threads do. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CU(name, ...) (((int (*)())symbol(driver, #name))(__VA_ARGS__))
#define ML(name, ...) (((int (*)())symbol(nvml, #name))(__VA_ARGS__))
#define TRY(call) do { int result_ = (call); if (result_) return result_; } while (0)

static void *driver, *nvml, *context, *function, *stream, *card, *second;
static atomic_int stopping, failed;
static atomic_long done;
static uint64_t work_ns;
static pthread_t threads[2], loader;

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "no %s\n", name), exit(2);
    return found;
}

static int begin(void) {
    void *module;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuStreamCreate, &stream, 1));
    TRY(CU(cuModuleLoadData, &module, "any image"));
    TRY(CU(cuModuleGetFunction, &function, module, "spin"));
    TRY(ML(nvmlInit_v2));
    return ML(nvmlDeviceGetHandleByIndex_v2, 0, &card);
}

static int launches(void) {
    void *parameters[] = {&work_ns};
    TRY(CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    return CU(cuStreamSynchronize, stream);
}
static int allocates(void) {
    unsigned long long at;
    TRY(CU(cuMemAlloc_v2, &at, (size_t)4 << 20));
    usleep(200);
    return CU(cuMemFree_v2, at);
}
static void *goes(void *what) {
    int result = CU(cuCtxSetCurrent, context);
    while (!stopping && !result) {
        result = ((int (*)(void))what)();
        done++;
    }
    if (result) failed = result;
    return NULL;
}

static void *loads(void *nothing) {
    int result = CU(cuCtxSetCurrent, context);
    failed = result ? result : CU(cuModuleLoadData, &second, "another image");
    return nothing;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !nvml) return fprintf(stderr, "%s\n", dlerror()), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0;
        long result = 0;
        if (sscanf(line, "%31s %llu", word, &one) < 1) continue;
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("work")) {
            work_ns = one;
            pthread_create(&threads[0], NULL, goes, launches);
            pthread_create(&threads[1], NULL, goes, allocates);
        } else if (IS("count")) result = done;
        else if (IS("info")) {
            struct { unsigned long long total, free, used; } memory = {0, 0, 0};
            result = ML(nvmlDeviceGetMemoryInfo, card, &memory);
            printf("info %ld %llu\n", result, memory.used);
            continue;
        } else if (IS("alloc")) {
            unsigned long long at;
            result = CU(cuMemAlloc_v2, &at, (size_t)one);
        } else if (IS("load")) result = pthread_create(&loader, NULL, loads, NULL);
        else if (IS("loaded")) {
            pthread_join(loader, NULL);
            result = failed;
        } else if (IS("unload")) result = CU(cuModuleUnload, second);
        else if (IS("stop")) {
            stopping = 1;
            for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
            result = failed;
        } else result = 998;
        printf("%s %ld\n", word, result);
    }
    return 0;
}
