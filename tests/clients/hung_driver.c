/* A driver with one device that hangs in cuInit of programs that load gpushare, or of all where
 * GPUTEST_HANGS is set, and writes the pid of such a process to the file GPUTEST_HUNG names. Signals
 * do not end it, except for a kill. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags) {
    (void)flags;
    const char *preload = getenv("LD_PRELOAD");
    if (!getenv("GPUTEST_HANGS") && (!preload || !strstr(preload, "libgpushare")))
        return 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGTERM, SIG_IGN);
    FILE *file = fopen(getenv("GPUTEST_HUNG"), "w");
    fprintf(file, "%d\n", getpid());
    fclose(file);
    for (;;)
        pause();
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    (void)device;
    memset(uuid, 7, 16);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)16 << 30;
    return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    snprintf(name, (size_t)length, "a device that hangs");
    return 0;
}
