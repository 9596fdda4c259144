/* Runs a program under a pid that another process had.
 *
 *   again PID PROGRAM ARGUMENT...
 *
 * Ends as the program does. Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and a pid that is free. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count < 3) return 2;
    pid_t wanted = atoi(arguments[1]);
    struct clone_args how = {
        .exit_signal = SIGCHLD,
        .set_tid = (uint64_t)(uintptr_t)&wanted,
        .set_tid_size = 1,
    };
    pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
    if (child < 0) {
        perror("clone3");
        return 1;
    }
    if (child == 0) {
        if (getpid() != wanted) _exit(1);
        execv(arguments[2], arguments + 2);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}
