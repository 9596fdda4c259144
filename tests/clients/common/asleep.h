/* Where a thread of this process is, seen from another one. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The system call in which a thread is, -1 for none. */
static long call_of(pid_t thread) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int file = open(path, O_RDONLY);
    if (file < 0) exit(7);
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 && text[0] != 'r' ? strtol(text, NULL, 10) : -1;
}

/* Whether a thread sleeps in a futex or a plain sleep: neither the driver nor anybody else computes
 * in it. */
__attribute__((unused)) static int sleeps(pid_t thread) {
    long number = call_of(thread);
    return number == SYS_futex || number == SYS_clock_nanosleep || number == SYS_nanosleep;
}
