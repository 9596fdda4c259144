/* A CUDA driver program that allocates and frees at random in two threads until it is told to stop.
 *
 *   start SEED MOST   -> start RESULT               cuInit, device 0, its primary context; allocations are of at most MOST bytes
 *   stop              -> stop HELD SERVED OTHER     bytes held now; allocations served; answers that were neither 0 nor 2
 *
 * The end of the input ends it with status 0. It knows nothing of gpushare. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long dptr;
enum { THREADS = 2, ROOM = 8 };

static int (*set_current)(void *);
static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static void *context;
static size_t most;
static atomic_int stopping;
static atomic_size_t held, served, other;

static void *symbol(void *driver, const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(2);
    return found;
}

static int start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) exit(2);
    int (*init)(unsigned) = symbol(driver, "cuInit");
    int (*retain)(void **, int) = symbol(driver, "cuDevicePrimaryCtxRetain");
    set_current = symbol(driver, "cuCtxSetCurrent");
    mem_alloc = symbol(driver, "cuMemAlloc_v2");
    mem_free = symbol(driver, "cuMemFree_v2");
    int result = init(0);
    return result ? result : retain(&context, 0);
}

static void *churn(void *argument) {
    unsigned long long random = *(unsigned long long *)argument | 1;
    struct { dptr at; size_t size; } live[ROOM] = {{0}};
    if (set_current(context)) other++;
    while (!stopping) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t i = random % ROOM;
        if (live[i].at) {
            if (mem_free(live[i].at)) other++;
            held -= live[i].size;
            live[i].at = 0;
        } else {
            size_t size = ((random >> 20) % most / 512 + 1) * 512;
            int result = mem_alloc(&live[i].at, size);
            if (!result) {
                live[i].size = size;
                held += size;
                served++;
            } else {
                live[i].at = 0;
                other += result != 2;
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

int main(void) {
    char line[256];
    pthread_t threads[THREADS];
    unsigned long long seeds[THREADS];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long seed, bytes;
        if (sscanf(line, "start %llu %llu", &seed, &bytes) == 2) {
            int result = start();
            most = bytes;
            for (int i = 0; i < THREADS && !result; i++) {
                seeds[i] = (seed + 1) * 0x9e3779b97f4a7c15ull * (i + 1);
                pthread_create(&threads[i], NULL, churn, &seeds[i]);
            }
            printf("start %d\n", result);
        } else if (!strncmp(line, "stop", 4)) {
            stopping = 1;
            for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
            printf("stop %zu %zu %zu\n", held, served, other);
        }
    }
    return 0;
}
