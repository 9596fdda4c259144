/* A CUDA program as it runs under tools: it finds functions as one that is linked to the driver, is
 * interrupted by a timer's signals all the time, launches, and allocates until it is refused. It
 * knows nothing of gpushare.
 *
 *   tooled COUNT BYTES   -> launched COUNT RESULT, allocated NUMBER RESULT, freed RESULT, checker CALLS (-1 without one) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define CU(name, ...) (((int (*)())dlsym(RTLD_DEFAULT, #name))(__VA_ARGS__))
#define TRY(call) do { int result_ = (call); if (result_) return result_; } while (0)

static void *context, *function, *stream;
static volatile sig_atomic_t signals;

static void on_alarm(int number) { signals += number == SIGALRM; }

static int begin(void) {
    void *module;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuStreamCreate, &stream, 1));
    TRY(CU(cuModuleLoadData, &module, "any image"));
    return CU(cuModuleGetFunction, &function, module, "spin");
}

static int spin(uint64_t ns) {
    void *parameters[] = {&ns};
    TRY(CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    return CU(cuStreamSynchronize, stream);
}

int main(int argc, char **argv) {
    static unsigned long long all[4096];
    int count = argc > 1 ? atoi(argv[1]) : 0, result = 0, made = 0;
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) return fprintf(stderr, "%s\n", dlerror()), 2;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    result = begin();
    for (int i = 0; i < count && !result; i++) result = spin(50000);
    printf("launched %d %d\n", count, result);
    while (made < 4096 && !(result = CU(cuMemAlloc_v2, &all[made], bytes))) made++;
    printf("allocated %d %d\n", made, result);
    for (result = 0; made > 0 && !result;) result = CU(cuMemFree_v2, all[--made]);
    printf("freed %d\n", result);
    int (*calls)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "checker_calls");
    printf("checker %d\n", calls ? calls() : -1);
    setitimer(ITIMER_REAL, &never, NULL);
    return signals ? 0 : 3;
}
