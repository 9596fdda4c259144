// Prints facts of a CUDA driver. Each family of facts runs in its own process, one after the other.
//
// usage: facts [--beyond] [--full] [--only FAMILY] [LIBRARY]     (default libcuda.so.1)
//
// The families `beyond` and `full` run only if they are asked for. `--only` leaves out all others.
// The same program runs on softgpu and on a real driver; transcript.tsv holds the answers.
#include "facts.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Time limit of one family (s), where the variable FACTS_PATIENCE does not say another. A family that hangs ends with a line that
// reports it, and the next family runs. So long after its limit is a process killed, and so long after that no longer waited for.
enum { PATIENCE = 200, LATER = 1 };
// So many calls of one family may end its process, and so many bytes has the answer for each.
enum { ENDS = 16, SIGNAL = 24 };

// What the processes of one family share, one after the other, with the processes that they fork.
struct family {
    // Calls that ended a process of this family, by their numbers, and the signals.
    int ends, call[ENDS], signal[ENDS];
    // Facts that earlier processes have printed, and facts that this one knows.
    int printed, known;
    // The number of the call that is being made; 0 between two calls.
    volatile int now;
    // The last fact that was said.
    char last[SIGNAL * 4];
};

static void *library;
static const char *family;
static struct family *shared;
// The process that runs the family, and the calls that it has made. A child that it forks does not count.
static pid_t runner;
static int made;
static _Thread_local int signalled;
static int patience = PATIENCE;

int call_begins(void) {
    if (getpid() != runner) return 1;
    int number = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < shared->ends; i++)
        if (shared->call[i] == number) return signalled = shared->signal[i], 0;
    shared->now = number;
    return 1;
}

// No result of a driver is negative.
result call_is_left_out(void) { return -signalled; }

result call_ends(result answer) {
    if (getpid() == runner) shared->now = 0;
    return answer;
}

void *driver_function(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        printf("%s.missing.%s\tabsent\n", family, name);
        fflush(stdout);
        _exit(0);
    }
    return function;
}

int lacks(const char *function, const char *const *facts) {
    if (dlsym(library, function)) return 0;
    for (; *facts; facts++) say(*facts, "absent");
    return 1;
}

void say(const char *fact, const char *answer) {
    snprintf(shared->last, sizeof shared->last, "%s", fact);
    if (__atomic_add_fetch(&shared->known, 1, __ATOMIC_RELAXED) <= shared->printed) return;
    printf("%s.%s\t%s\n", family, fact, answer);
    fflush(stdout);
}

void say_result(const char *fact, result answer) {
    const char *name = NULL;
    char unknown[SIGNAL];
    if (answer < 0) {
        snprintf(unknown, sizeof unknown, "signal %d", -answer);
        name = unknown;
    } else if (CU(cuGetErrorName, answer, &name) || !name) {
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

int fork_facts(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) alarm(patience);
    return child;
}

int driver_version(void) {
    int version = 0;
    must("cuDriverGetVersion", CU(cuDriverGetVersion, &version));
    return version;
}

double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int has_ended(int file, int seconds) {
    struct pollfd end = {.fd = file, .events = POLLIN};
    int answer;
    do answer = poll(&end, 1, seconds * 1000);
    while (answer < 0 && errno == EINTR);
    return answer > 0;
}

// The end of a family's process, as `waitpid` says it. In a driver it may be deaf to its alarm, and to a kill as well: then it is left.
static int end_of(pid_t child) {
    int status = SIGKILL, file = (int)syscall(SYS_pidfd_open, child, 0);
    if (file < 0 || has_ended(file, patience + LATER)) {
        waitpid(child, &status, 0);
    } else {
        kill(child, SIGKILL);
        if (has_ended(file, LATER)) waitpid(child, NULL, 0);
    }
    if (file >= 0) close(file);
    return status;
}

// Runs a family in a process of its own, and again without a call that has ended its process.
static void run(void (*facts)(void)) {
    for (;;) {
        shared->printed = shared->known;
        shared->known = shared->now = 0;
        pid_t child = fork_facts();
        if (child == 0) {
            runner = getpid();
            facts();
            exit(0);
        }
        int status = end_of(child);
        if (!status) return;
        int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (!by || by == SIGALRM || by == SIGKILL || !shared->now || shared->ends == ENDS) {
            char text[32];
            fprintf(stderr, "facts: %s: ended after the fact %s\n", family, shared->last);
            snprintf(text, sizeof text, by ? "signal %d" : "status %d", by ? by : WEXITSTATUS(status));
            shared->printed = 0;
            return say("ended", text);
        }
        fprintf(stderr, "facts: %s: its call %d ended the process by signal %d\n", family, shared->now, by);
        shared->call[shared->ends] = shared->now;
        shared->signal[shared->ends++] = by;
    }
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
        {"launch", launch_facts},   {"module", module_facts},   {"kernel", kernel_facts},   {"fault", fault_facts}, {"fault", fault_beside_facts},     {"denied", denied_facts}, {"reach", reach_facts},
        {"kept", kept_facts},       {"reset", reset_facts},   {"reset", reset_mapped_facts}, {"reset", reset_pool_facts},
        {"array", array_facts},     {"managed", managed_facts}, {"beyond", beyond_facts}, {"pointer", pointer_facts},
        {"graph", graph_facts},     {"graph", graph_update_facts}, {"told", told_facts},      {"conditional", conditional_facts}, {"coredump", coredump_facts},
        {"green", green_facts},     {"green", green_life_facts}, {"green", green_use_facts}, {"green", green_end_facts},
        {"green", green_as_context_facts}, {"green", green_undescribed_facts}, {"green", green_plain_facts},
        {"ipc", ipc_facts},     {"values", values_facts},
        {"foreign", foreign_facts}, {"room", room_facts},       {"turn", turn_facts},   {"along", along_facts}, {"moves", moves_facts},
        {"marks", marks_facts},     {"ending", ending_facts},  {"free", free_facts},  {"ended", ended_facts},  {"home", home_facts},     {"ipc", ipc_freed_facts}, {"full", full_facts},
    };
    int beyond = argc > 1 && !strcmp(argv[1], "--beyond");
    if (beyond) argc--, argv++;
    int full = argc > 1 && !strcmp(argv[1], "--full");
    if (full) argc--, argv++;
    const char *only = argc > 2 && !strcmp(argv[1], "--only") ? argv[2] : NULL;
    if (only) argc -= 2, argv += 2;
    library = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
    if (!library) return fprintf(stderr, "facts: %s\n", dlerror()), 2;
    if (getenv("FACTS_PATIENCE")) patience = atoi(getenv("FACTS_PATIENCE"));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("facts: mmap"), 2;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        family = families[i].name;
        if (!strcmp(family, "beyond") && !beyond) continue;
        if (!strcmp(family, "full") && !full) continue;
        if (only && strcmp(family, only)) continue;
        memset(shared, 0, sizeof *shared);
        run(families[i].facts);
    }
    return 0;
}
