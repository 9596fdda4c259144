// Runs PROGRAM with this program's arguments and input, and appends the microseconds from its
// start to its end to TIMES, as a line. Ends as PROGRAM does. Compiled with
// -DPROGRAM="path" and -DTIMES="path": a runtime passes a hook its own arguments only.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

int main(int count, char **arguments)
{
    (void)count;
    long long began = now();
    pid_t child = vfork();
    if (child == 0) {
        execv(PROGRAM, arguments);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("timer");
        return 2;
    }
    long long took = now() - began;
    FILE *times = fopen(TIMES, "a");
    if (!times || fprintf(times, "%lld\n", took) < 0 || fclose(times) != 0) {
        perror("timer: " TIMES);
        return 2;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
