/* CUDA calls at unusual moments of a process's life. usage: lifecycle <moment>
 *   destructors   from thread-exit and program-exit handlers
 *   fork-before   parent forks before CUDA starts; then both use it
 *   fork-during   parent forks while another thread makes the first call; once that blocks it says so
 *   fork-after    parent forks after CUDA started; the child tries, then runs this program anew
 *   fresh         uses CUDA and says so
 *   race          many threads make the first call at once
 *   closed        the program closes the driver before calling what it had looked up
 *   loading       another thread makes the first call; once that waits for a daemon, the program loads the library that
 *                 it is given beside the moment */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/asleep.h"

typedef unsigned long long dptr;
static int (*init)(unsigned);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static void *driver, *context;

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static void look_up(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) exit(9);
    init = dlsym(driver, "cuInit");
    retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    set_current = dlsym(driver, "cuCtxSetCurrent");
    mem_alloc = dlsym(driver, "cuMemAlloc_v2");
    mem_free = dlsym(driver, "cuMemFree_v2");
}

static int start(void) {
    int result = init(0);
    if (!result) result = retain(&context, 0);
    return result ? result : set_current(context);
}

static void use(const char *when) {
    dptr at = 0;
    int current = set_current(context), got = mem_alloc(&at, 1 << 20), freed = got ? -1 : mem_free(at);
    printf("%s: %d %d %d\n", when, current, got, freed);
    fflush(stdout);
}

static void at_key(void *ignored) { (void)ignored; use("key destructor"); }
static void at_thread(void *ignored) { (void)ignored; use("thread destructor"); }
static void at_end(void) { use("exit handler"); }
__attribute__((destructor)) static void at_unload(void) { if (context) use("library destructor"); }

static void *worker(void *key) {
    pthread_setspecific(*(pthread_key_t *)key, key);
    __cxa_thread_atexit_impl(at_thread, key, &__dso_handle);
    use("thread");
    return NULL;
}

static void *racer(void *barrier) {
    pthread_barrier_wait(barrier);
    return (void *)(intptr_t)init(0);
}

static atomic_int starter_id, starters_answer = -1;

/* Whether a thread is opening a file. */
static int opens(pid_t thread) {
    long number = call_of(thread);
#ifdef SYS_open
    if (number == SYS_open) return 1;
#endif
    return number == SYS_openat;
}

/* Whether a thread waits for a message. */
static int polls(pid_t thread) {
    long number = call_of(thread);
#ifdef SYS_poll
    if (number == SYS_poll) return 1;
#endif
    return number == SYS_ppoll;
}

static void *starter(void *unused) {
    starter_id = (int)syscall(SYS_gettid);
    starters_answer = start();
    return unused;
}

static int child(const char *name) {
    int result = start();
    printf("%s: %d\n", name, result);
    if (!result) use(name);
    return 0;
}

int main(int argc, char **argv) {
    const char *moment = argc > 1 ? argv[1] : "";
    look_up();
    if (!strcmp(moment, "fresh")) return child("fresh");
    if (!strcmp(moment, "destructors")) {
        pthread_key_t key;
        pthread_t thread;
        if (start()) return 1;
        atexit(at_end);
        pthread_key_create(&key, at_key);
        pthread_create(&thread, NULL, worker, &key);
        pthread_join(thread, NULL);
        return 0;
    }
    if (!strcmp(moment, "race")) {
        pthread_t threads[16];
        pthread_barrier_t barrier;
        void *result;
        pthread_barrier_init(&barrier, NULL, 16);
        for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, racer, &barrier);
        for (int i = 0; i < 16; i++) {
            pthread_join(threads[i], &result);
            printf("%ld", (long)(intptr_t)result);
        }
        puts("");
        start();
        use("after the race");
        context = NULL;
        return 0;
    }
    if (!strcmp(moment, "closed")) {
        if (start()) return 1;
        dlclose(driver);
        use("after dlclose");
        context = NULL;
        return 0;
    }
    if (!strcmp(moment, "fork-during")) {
        pthread_t thread;
        pthread_create(&thread, NULL, starter, NULL);
        for (int seen = 0; seen < 5; usleep(1000)) seen = starter_id && opens(starter_id) ? seen + 1 : 0;
        pid_t forked = fork();
        if (!forked) {
            child("child");
            fflush(stdout);
            _exit(0);
        }
        puts("forked");
        fflush(stdout);
        int status;
        waitpid(forked, &status, 0);
        pthread_join(thread, NULL);
        printf("child ended %d\nparent: %d\n", status, starters_answer);
        use("parent");
        context = NULL;
        return 0;
    }
    if (!strcmp(moment, "loading") && argc > 2) {
        pthread_t thread;
        pthread_create(&thread, NULL, starter, NULL);
        for (int seen = 0; seen < 5; usleep(1000)) seen = starter_id && polls(starter_id) ? seen + 1 : 0;
        if (!dlopen(argv[2], RTLD_NOW)) puts(dlerror());
        pthread_join(thread, NULL);
        printf("starter: %d\n", starters_answer);
        context = NULL;
        return 0;
    }
    int before = !strcmp(moment, "fork-before");
    if (!before && start()) return 1;
    fflush(stdout);
    pid_t forked = fork();
    if (!forked) {
        child("child");
        fflush(stdout);
        if (!before) execl(argv[0], argv[0], "fresh", NULL);
        _exit(0);
    }
    int status;
    waitpid(forked, &status, 0);
    printf("child ended %d\n", status);
    if (before) return child("parent");
    use("parent");
    context = NULL;
    return 0;
}
