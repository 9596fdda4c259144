// Calls the driver named by the first argument during process exit, and prints the result. The second argument names the caller:
// `later` an exit handler registered before cuInit, `earlier` one registered after it, `thread` another thread during `later`'s handler,
// `quick` a handler of quick_exit, `main` a thread that runs on after main has returned, `child` a forked child's handler.
// `work`: no call; work is queued that copies a byte 7 through device memory once the teardown is over, and the byte that came
// is printed at the end of all work.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CU(name, ...) (((int (*)())dlsym(lib, #name))(__VA_ARGS__))

static void *lib;
static atomic_int late;

static int asks(void) {
    int current = CU(cuCtxSynchronize);
    printf("%d\n", current);
    fflush(stdout);
    return current;
}

static void calls(void) { asks(); }
static void *waits_and_calls(void *unused) {
    while (!late) usleep(100);
    return asks(), unused;
}
static pthread_t thread;
static void has_another_call(void) {
    late = 1;
    pthread_join(thread, NULL);
}
static void *goes_on(void *context) {
    usleep(20000);
    CU(cuCtxSetCurrent, context);
    asks();
    exit(asks());
}

static atomic_int over;
static unsigned char *host;
static void waits(void *stream, int result, void *unused) {
    while (!late) usleep(100);
}
static void says_over(void *stream, int result, void *unused) { over = 1; }
static void awaits_work(void) {
    late = 1;
    for (int left = 100000; !over && left; left--) usleep(100);
    printf("%d\n", over ? host[1] : -1);
    fflush(stdout);
}
static int queues(void) {
    void *stream, *memory;
    if (CU(cuStreamCreate, &stream, 1) || CU(cuMemAlloc_v2, &memory, 4096ul) || CU(cuMemHostAlloc, &host, 4096ul, 0)) return 3;
    host[0] = 7;
    if (CU(cuStreamAddCallback, stream, waits, NULL, 0) || CU(cuMemcpyHtoDAsync_v2, memory, host, 1ul, stream)) return 3;
    return CU(cuMemcpyDtoHAsync_v2, host + 1, memory, 1ul, stream) || CU(cuStreamAddCallback, stream, says_over, NULL, 0);
}

int main(int argc, char **argv) {
    void *context = NULL;
    const char *who = argc > 2 ? argv[2] : "";
    lib = dlopen(argv[1], RTLD_NOW);
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
    if (!strcmp(who, "later")) atexit(calls);
    if (!strcmp(who, "thread")) atexit(has_another_call);
    if (!strcmp(who, "quick")) at_quick_exit(calls);
    if (!strcmp(who, "work")) atexit(awaits_work);
    if (CU(cuInit, 0) || CU(cuDevicePrimaryCtxRetain, &context, 0) || CU(cuCtxSetCurrent, context)) return 3;
    if (!strcmp(who, "earlier")) atexit(calls);
    if (!strcmp(who, "earlier-work")) atexit(awaits_work);
    if (strstr(who, "work") && queues()) return 3;
    if (!strcmp(who, "thread")) pthread_create(&thread, NULL, waits_and_calls, NULL);
    if (!strcmp(who, "quick")) quick_exit(0);
    if (!strcmp(who, "main")) {
        pthread_create(&thread, NULL, goes_on, context);
        pthread_exit(NULL);
    }
    if (!strcmp(who, "child")) {
        atexit(calls);
        pid_t child = fork();
        if (child == 0) exit(0);
        int status;
        waitpid(child, &status, 0);
        if (status) return 4;
    }
    return 0;
}
