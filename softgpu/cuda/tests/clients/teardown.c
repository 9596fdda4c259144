// Calls the driver named by the first argument during process exit, and prints the result. The second argument names the caller:
// `later` an exit handler registered before cuInit, `earlier` one registered after it, `thread` another thread during `later`'s handler,
// `quick` a handler of quick_exit, `main` a thread that runs on after main has returned, `child` a forked child's handler.
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

int main(int argc, char **argv) {
    void *context = NULL;
    const char *who = argc > 2 ? argv[2] : "";
    lib = dlopen(argv[1], RTLD_NOW);
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
    if (!strcmp(who, "later")) atexit(calls);
    if (!strcmp(who, "thread")) atexit(has_another_call);
    if (!strcmp(who, "quick")) at_quick_exit(calls);
    if (CU(cuInit, 0) || CU(cuDevicePrimaryCtxRetain, &context, 0) || CU(cuCtxSetCurrent, context)) return 3;
    if (!strcmp(who, "earlier")) atexit(calls);
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
