/* Times a program from its start to its end, without a preloaded library and with each of several,
 * in turn, so that all see the same machine.
 *
 *   spawn ROUNDS LIBRARY... -- PROGRAM [ARGUMENT...]
 *
 * A line for each library: the median of what it adds to the bare run beside it, in microseconds
 * by the clock and of processor time, the page faults that it adds, and its path. The first line is
 * of the bare program: all that it takes. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define MOST 32
extern char **environ;
static char **with[MOST];

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

enum { CLOCK, PROCESSOR, MEASURES };

static double microseconds(struct timeval time) {
    return time.tv_sec * 1e6 + time.tv_usec;
}

/* Microseconds of one run, and its page faults. */
static void run(char **command, char **environment, double took[MEASURES], long *faults) {
    struct timespec from, to;
    struct rusage usage;
    pid_t pid;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (posix_spawn(&pid, command[0], NULL, NULL, command, environment) != 0 ||
        wait4(pid, &status, 0, &usage) != pid || status != 0) {
        fprintf(stderr, "%s does not run\n", command[0]);
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    *faults = usage.ru_minflt + usage.ru_majflt;
    took[CLOCK] = (to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) / 1e3;
    took[PROCESSOR] = microseconds(usage.ru_utime) + microseconds(usage.ru_stime);
}

/* The environment with this library preloaded, or none. */
static char **preloading(const char *library) {
    int count = 0;
    while (environ[count]) count++;
    char **made = calloc(count + 2, sizeof *made);
    int at = 0;
    for (int i = 0; i < count; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0) made[at++] = environ[i];
    if (library && asprintf(&made[at], "LD_PRELOAD=%s", library) < 0) exit(1);
    return made;
}

int main(int argc, char **argv) {
    int libraries = 0;
    while (libraries + 2 < argc && strcmp(argv[libraries + 2], "--") != 0) libraries++;
    int rounds = argc > 1 ? atoi(argv[1]) : 0;
    char **command = argv + libraries + 3;
    if (rounds < 1 || libraries >= MOST || libraries + 3 >= argc) {
        fprintf(stderr, "usage: %s ROUNDS LIBRARY... -- PROGRAM [ARGUMENT...]\n", argv[0]);
        return 2;
    }
    double *took[MOST][MEASURES], one[MEASURES];
    long faults[MOST];
    for (int i = 0; i <= libraries; i++) {
        with[i] = preloading(i ? argv[i + 1] : NULL);
        for (int measure = 0; measure < MEASURES; measure++) took[i][measure] = calloc(rounds, sizeof(double));
        run(command, with[i], one, &faults[i]);
    }
    for (int round = 0; round < rounds; round++) {
        /* Each has every place in the order equally often. */
        for (int i = 0; i <= libraries; i++) {
            int which = (i + round) % (libraries + 1);
            run(command, with[which], one, &faults[which]);
            for (int measure = 0; measure < MEASURES; measure++) took[which][measure][round] = one[measure];
        }
    }
    for (int i = libraries; i >= 0; i--)
        for (int measure = 0; measure < MEASURES; measure++) {
            for (int round = 0; i && round < rounds; round++) took[i][measure][round] -= took[0][measure][round];
            qsort(took[i][measure], rounds, sizeof(double), ascending);
        }
    for (int i = 0; i <= libraries; i++)
        printf("%8.1f %8.1f %4ld %s\n", took[i][CLOCK][rounds / 2], took[i][PROCESSOR][rounds / 2],
               faults[i] - (i ? faults[0] : 0), i ? argv[i + 1] : "-");
    return 0;
}
