/* Where a thread of this process is, seen from another one. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Whether a thread sleeps in a futex or a plain sleep: neither the driver nor anybody else computes
 * in it. */
static int sleeps(pid_t thread) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int file = open(path, O_RDONLY);
    if (file < 0) exit(7);
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    long number = got > 0 && text[0] != 'r' ? strtol(text, NULL, 10) : -1;
    return number == SYS_futex || number == SYS_clock_nanosleep || number == SYS_nanosleep;
}
