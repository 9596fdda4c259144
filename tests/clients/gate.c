/* Launches from everywhere: threads that come and go, destructors of thread-specific data, signal
 * handlers, processes forked while other threads launch. Each part prints how many launches it made
 * and how many of them the driver refused.
 *
 *   usage: gate PART...    churn, destructors, signals, forks, callbacks, streams, captures, contexts, forever (says so, and launches
 *                         until it is killed), wait (for a line); unbarred first: without membarrier
 *
 * Kernels take GATE_SPIN microseconds, or next to nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_fn kernel;
static void *function, *context;
static int (*set_current)(void *);
static atomic_long made, refused;
static pthread_key_t key;
static uint64_t spin_ns;
static void *spin_params[] = {&spin_ns};

static void *find_kernel(int (*get)(void **, void *, const char *), void *module) {
    void *found;
    int result = get(&found, module, spin_ns ? "spin" : "nothing");
    return result ? NULL : found;
}

static void *find(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) exit(3);
    return found;
}

static void must(int result) {
    if (result) {
        fprintf(stderr, "CUDA error %d\n", result);
        exit(4);
    }
}

static void launch(void) {
    atomic_fetch_add(&made, 1);
    if (kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL)) atomic_fetch_add(&refused, 1);
}

static void start(void) {
    int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))find("cuDevicePrimaryCtxRetain");
    int (*load)(void **, const void *) = (int (*)(void **, const void *))find("cuModuleLoadData");
    int (*get)(void **, void *, const char *) = (int (*)(void **, void *, const char *))find("cuModuleGetFunction");
    set_current = (int (*)(void *))find("cuCtxSetCurrent");
    kernel = (launch_fn)find("cuLaunchKernel");
    void *module;
    must(init(0));
    must(retain(&context, 0));
    must(set_current(context));
    must(load(&module, "image"));
    function = find_kernel(get, module);
}

static void *some(void *count) {
    must(set_current(context));
    for (long i = 0; i < (long)count; i++) launch();
    return NULL;
}

static void churn(void) {
    pthread_t threads[16];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 16; i++) must(pthread_create(&threads[i], NULL, some, (void *)50));
        for (int i = 0; i < 16; i++) must(pthread_join(threads[i], NULL));
    }
}

static void last_will(void *value) {
    some(value);
}

static void *with_destructor(void *count) {
    pthread_setspecific(key, count);
    return NULL;
}

static void destructors(void) {
    pthread_t thread;
    must(pthread_key_create(&key, last_will));
    for (int i = 0; i < 100; i++) {
        must(pthread_create(&thread, NULL, with_destructor, (void *)3));
        must(pthread_join(thread, NULL));
    }
}

static volatile sig_atomic_t interrupted;

static void handler(int signal) {
    (void)signal;
    launch();
    interrupted++;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (interrupted < 1000) launch();
    setitimer(ITIMER_REAL, &never, NULL);
}

static atomic_int ended;

static void *until_the_end(void *unused) {
    must(set_current(context));
    while (!ended) launch();
    return unused;
}

/* A child's launches are the driver's to answer; what counts is that it is neither kept waiting nor
 * killed. */
static void forks(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) must(pthread_create(&threads[i], NULL, until_the_end, NULL));
    for (int i = 0; i < 50; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            for (int j = 0; j < 10; j++) kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL);
            _exit(7);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "a child ended with %x\n", status);
            exit(5);
        }
    }
    ended = 1;
    for (int i = 0; i < 4; i++) must(pthread_join(threads[i], NULL));
}

static void from_callback(void *unused) {
    (void)unused;
    launch();
}

/* A launch in a host callback is refused by the driver; the gate must not keep it waiting, for the
 * stream waits for it. */
static void callbacks(void) {
    int (*host)(void *, void (*)(void *), void *) = (int (*)(void *, void (*)(void *), void *))find("cuLaunchHostFunc");
    int (*wait)(void *) = (int (*)(void *))find("cuStreamSynchronize");
    for (int i = 0; i < 50; i++) {
        must(kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL));
        must(host(NULL, from_callback, NULL));
        must(kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL));
        must(wait(NULL));
    }
}

static void launch_in(void *stream) {
    atomic_fetch_add(&made, 1);
    if (kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, spin_params, NULL)) atomic_fetch_add(&refused, 1);
}

/* Streams that come and go with work in them. */
static void *short_streams(void *count) {
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))find("cuStreamCreate");
    int (*destroy)(void *) = (int (*)(void *))find("cuStreamDestroy_v2");
    must(set_current(context));
    for (long i = 0; i < (long)count; i++) {
        void *stream;
        must(create(&stream, i % 2));
        for (int j = 0; j < 10; j++) launch_in(stream);
        must(destroy(stream));
    }
    return NULL;
}

/* Captures of every mode, which nothing done on other threads may spoil. These threads wait for
 * streams of their own beside each other's captures, and say that they may; what the library does
 * in them and in others must not need that. */
static void *short_captures(void *count) {
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))find("cuStreamCreate");
    int (*begin)(void *, int) = (int (*)(void *, int))find("cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))find("cuStreamEndCapture");
    int (*instantiate)(void **, void *, uint64_t) = (int (*)(void **, void *, uint64_t))find("cuGraphInstantiateWithFlags");
    int (*run)(void *, void *) = (int (*)(void *, void *))find("cuGraphLaunch");
    int (*wait)(void *) = (int (*)(void *))find("cuStreamSynchronize");
    int (*exchange)(int *) = (int (*)(int *))find("cuThreadExchangeStreamCaptureMode");
    int (*make_event)(void **, unsigned) = (int (*)(void **, unsigned))find("cuEventCreate");
    int (*record)(void *, void *) = (int (*)(void *, void *))find("cuEventRecord");
    int (*wait_event)(void *, void *, unsigned) = (int (*)(void *, void *, unsigned))find("cuStreamWaitEvent");
    void *stream, *joining, *event, *graph, *exec;
    int relaxed = 2;
    must(set_current(context));
    must(exchange(&relaxed));
    must(create(&stream, 1));
    must(create(&joining, 1));
    must(make_event(&event, 2));
    for (long i = 0; i < (long)count; i++) {
        must(begin(stream, i % 3));
        for (int j = 0; j < 5; j++) launch_in(stream);
        /* Another stream joins, works, and is joined again. */
        must(record(event, stream));
        must(wait_event(joining, event, 0));
        launch_in(joining);
        must(record(event, joining));
        must(wait_event(stream, event, 0));
        must(end(stream, &graph));
        launch_in(joining);
        must(instantiate(&exec, graph, 0));
        must(run(exec, stream));
        launch_in(stream);
        must(wait(stream));
    }
    return NULL;
}

/* Contexts that come and go with work in them. */
static void *short_contexts(void *count) {
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))find("cuCtxCreate_v2");
    int (*destroy)(void *) = (int (*)(void *))find("cuCtxDestroy_v2");
    int (*load)(void **, const void *) = (int (*)(void **, const void *))find("cuModuleLoadData");
    int (*get)(void **, void *, const char *) = (int (*)(void **, void *, const char *))find("cuModuleGetFunction");
    for (long i = 0; i < (long)count; i++) {
        void *own, *module, *nothing;
        must(create(&own, 0, 0));
        must(load(&module, "image"));
        nothing = find_kernel(get, module);
        for (int j = 0; j < 20; j++) {
            atomic_fetch_add(&made, 1);
            if (kernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL)) atomic_fetch_add(&refused, 1);
        }
        must(destroy(own));
    }
    return NULL;
}

/* Three threads do `body`, beside one that launches so that there is always something to mark and
 * to drain. */
static void beside_others(void *(*body)(void *), long count) {
    pthread_t threads[4];
    ended = 0;
    must(pthread_create(&threads[3], NULL, body == short_captures ? short_streams : until_the_end, (void *)count));
    for (int i = 0; i < 3; i++) must(pthread_create(&threads[i], NULL, body, (void *)count));
    for (int i = 0; i < 3; i++) must(pthread_join(threads[i], NULL));
    ended = 1;
    must(pthread_join(threads[3], NULL));
}

static void forever(void) {
    int (*wait)(void *) = (int (*)(void *))find("cuStreamSynchronize");
    puts("launching");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < 8; i++) must(kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL));
        must(wait(NULL));
    }
}

/* From here on this process has no membarrier, as in many a sandbox. */
static void unbar(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(77);
    if (syscall(SYS_membarrier, 0, 0, 0) != -1 || errno != EPERM) exit(77);
}

int main(int argc, char **argv) {
    int unbarred = argc > 1 && !strcmp(argv[1], "unbarred");
    if (unbarred) unbar();
    if (getenv("GATE_SPIN")) spin_ns = 1000 * strtoull(getenv("GATE_SPIN"), NULL, 10);
    start();
    for (int i = 1 + unbarred; i < argc; i++) {
        made = refused = 0;
        if (!strcmp(argv[i], "churn")) churn();
        else if (!strcmp(argv[i], "destructors")) destructors();
        else if (!strcmp(argv[i], "signals")) signals();
        else if (!strcmp(argv[i], "forks")) forks();
        else if (!strcmp(argv[i], "callbacks")) callbacks();
        else if (!strcmp(argv[i], "streams")) beside_others(short_streams, 100);
        else if (!strcmp(argv[i], "captures")) beside_others(short_captures, 60);
        else if (!strcmp(argv[i], "contexts")) beside_others(short_contexts, 15);
        else if (!strcmp(argv[i], "forever")) forever();
        else if (!strcmp(argv[i], "wait")) return getchar() == EOF ? 6 : 0;
        else return 2;
        printf("%s %ld made %ld refused\n", argv[i], atomic_load(&made), atomic_load(&refused));
        fflush(stdout);
    }
    return 0;
}
