// Prints facts of a CUDA driver. Each family of facts runs in its own process, one after the other.
//
// usage: facts [--beyond] [LIBRARY]     (default libcuda.so.1)
//
// The family `beyond` runs only if it is asked for.
// The same program runs on softgpu and on a real driver; transcript.tsv holds the answers.
#include "facts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

// Time limit of one family (s). A family that hangs ends with a line that reports it, and the next family runs.
enum { PATIENCE = 30 };

static void *library;
static const char *family;

void *driver_function(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        printf("%s.missing.%s\tabsent\n", family, name);
        fflush(stdout);
        _exit(0);
    }
    return function;
}

void say(const char *fact, const char *answer) {
    printf("%s.%s\t%s\n", family, fact, answer);
    fflush(stdout);
}

void say_result(const char *fact, result answer) {
    const char *name = NULL;
    char unknown[32];
    if (CU(cuGetErrorName, answer, &name) || !name) {
        snprintf(unknown, sizeof unknown, "%d", answer);
        name = unknown;
    }
    if (!strncmp(name, "CUDA_ERROR_", 11)) name += 11;
    if (!strncmp(name, "CUDA_", 5)) name += 5;
    say(fact, name);
}

void say_bool(const char *fact, int holds) { say(fact, holds ? "yes" : "no"); }

void say_number(const char *fact, long long answer) {
    char text[32];
    snprintf(text, sizeof text, "%lld", answer);
    say(fact, text);
}

void must(const char *what, result answer) {
    if (!answer) return;
    char fact[128];
    snprintf(fact, sizeof fact, "cannot.%s", what);
    say_result(fact, answer);
    _exit(0);
}

handle begin(void) {
    handle context;
    must("cuInit", CU(cuInit, 0));
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &context, 0));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    return context;
}

struct call {
    void (*body)(void *);
    void *argument;
};

static void *call(void *call) {
    struct call *what = call;
    what->body(what->argument);
    return NULL;
}

void in_thread(void (*body)(void *), void *argument) {
    pthread_t thread;
    struct call what = {body, argument};
    pthread_create(&thread, NULL, call, &what);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*facts)(void);
    } families[] = {
        {"start", start_facts},     {"lookup", lookup_facts},   {"device", device_facts}, {"primary", primary_facts},
        {"context", context_facts}, {"linear", linear_facts},   {"copy", copy_facts},     {"host", host_facts},
        {"pool", pool_facts},       {"place", place_facts},     {"vmm", vmm_facts},       {"stream", stream_facts}, {"capture", capture_facts},
        {"forbidden", forbidden_facts},
        {"launch", launch_facts},   {"module", module_facts},   {"kernel", kernel_facts},   {"fault", fault_facts},     {"denied", denied_facts},
        {"array", array_facts},     {"managed", managed_facts}, {"beyond", beyond_facts}, {"pointer", pointer_facts},
        {"graph", graph_facts},     {"told", told_facts},      {"conditional", conditional_facts}, {"coredump", coredump_facts},
        {"green", green_facts},     {"ipc", ipc_facts},     {"values", values_facts},
        {"foreign", foreign_facts}, {"room", room_facts},       {"turn", turn_facts},   {"moves", moves_facts},
        {"marks", marks_facts},     {"ending", ending_facts},
    };
    int beyond = argc > 1 && !strcmp(argv[1], "--beyond");
    if (beyond) argc--, argv++;
    library = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
    if (!library) return fprintf(stderr, "facts: %s\n", dlerror()), 2;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        family = families[i].name;
        if (!strcmp(family, "beyond") && !beyond) continue;
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE);
            families[i].facts();
            exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) {
            char text[32];
            snprintf(text, sizeof text, WIFSIGNALED(status) ? "signal %d" : "status %d",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            say("ended", text);
        }
    }
    return 0;
}
