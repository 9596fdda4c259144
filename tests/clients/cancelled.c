/* A monitor whose threads are cancelled in NVML calls, or with an argument a CUDA driver program. usage: cancelled [cuda]
 *
 * Each call is made by a thread whose cancellation is pending: it acts at the first cancellation point that the thread comes to. NVML's own
 * calls have none. The CUDA program has commands on its standard input: init, which it answers, and then info (cuMemGetInfo), stream
 * (cuStreamCreate) and event (cuEventRecord), which have none either. Prints for each call its result, and 1 if the thread ended as cancelled behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } entry;

static void *library, *device;
#define CALL(name, types) ((int (*) types)dlsym(library, name))

static int shows_memory(void) {
    memory shown;
    return CALL("nvmlDeviceGetMemoryInfo", (void *, memory *))(device, &shown);
}

static int lists_processes(void) {
    unsigned count = 64;
    entry entries[64];
    return CALL("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, entry *))(device, &count, entries);
}

static void *context;

static int asks_for_memory(void) {
    size_t free, total;
    return CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
}

static int makes_a_stream(void) {
    void *stream;
    return CALL("cuStreamCreate", (void **, unsigned))(&stream, 0);
}

static int records_an_event(void) {
    void *event;
    if (CALL("cuEventCreate", (void **, unsigned))(&event, 0)) return -2;
    return CALL("cuEventRecord", (void *, void *))(event, NULL);
}

static sem_t is_pending;
static int (*call)(void), result;

static void *calls(void *unused) {
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_wait(&is_pending);
    /* softgpu has a cancellation point in a thread's first event. */
    void *event;
    if (context) CALL("cuCtxSetCurrent", (void *))(context), CALL("cuEventCreate", (void **, unsigned))(&event, 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    result = call();
    pthread_testcancel();
    return NULL;
}

static void cancelled_in(const char *name, int (*asked)(void)) {
    pthread_t thread;
    void *end;
    call = asked;
    result = -1;
    sem_init(&is_pending, 0, 0);
    pthread_create(&thread, NULL, calls, NULL);
    pthread_cancel(thread);
    sem_post(&is_pending);
    pthread_join(thread, &end);
    printf("%s %d %d\n", name, result, end == PTHREAD_CANCELED);
}

static int cuda(void) {
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 2;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || CALL("cuInit", (unsigned))(0)) return 2;
    if (CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0)) return 2;
    printf("init 0\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (*line == 'i') cancelled_in("info", asks_for_memory);
        if (*line == 's') cancelled_in("stream", makes_a_stream);
        if (*line == 'e') cancelled_in("event", records_an_event);
        fflush(stdout);
    }
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) return cuda();
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    cancelled_in("memory", shows_memory);
    cancelled_in("processes", lists_processes);
    return 0;
}
