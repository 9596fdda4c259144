/* Whether the process is registered for the barrier of its threads (membarrier, private expedited),
 * printed at each step.
 *
 *   usage: barred alone|threads    with `threads` a second thread lives from the beginning
 *
 * Prints "init R", "context R", "launched R": R is 1 where it is registered. Waits for a line after
 * that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *find(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) exit(3);
    return found;
}

static void must(int result) {
    if (result) exit(4);
}

static void *idle(void *unused) {
    for (;;) pause();
    return unused;
}

static void say(const char *step) {
    enum { PRIVATE_EXPEDITED = 1 << 3 };
    printf("%s %d\n", step, syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0);
}

int main(int argc, char **argv) {
    void *context, *module, *function;
    pthread_t thread;
    char line[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "threads")) must(pthread_create(&thread, NULL, idle, NULL));
    must(((int (*)(unsigned))find("cuInit"))(0));
    say("init");
    must(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0));
    must(((int (*)(void *))find("cuCtxSetCurrent"))(context));
    say("context");
    must(((int (*)(void **, const void *))find("cuModuleLoadData"))(&module, "any"));
    must(((int (*)(void **, void *, const char *))find("cuModuleGetFunction"))(&function, module, "nothing"));
    typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    must(((launch_fn)find("cuLaunchKernel"))(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    must(((int (*)(void))find("cuCtxSynchronize"))());
    say("launched");
    return fgets(line, sizeof line, stdin) == NULL;
}
