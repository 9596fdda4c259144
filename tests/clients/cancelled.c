/* A monitor whose threads are cancelled in NVML calls. usage: cancelled
 *
 * Each call is made by a thread whose cancellation is pending: it acts at the first cancellation point that the thread comes to. NVML's own
 * calls have none. Prints for each call its result, and 1 if the thread ended as cancelled behind it. */
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

static sem_t is_pending;
static int (*call)(void), result;

static void *calls(void *unused) {
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_wait(&is_pending);
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

int main(void) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    cancelled_in("memory", shows_memory);
    cancelled_in("processes", lists_processes);
    return 0;
}
