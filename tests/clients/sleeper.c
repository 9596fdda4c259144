/* A process that sleeps on a futex word of a shared page, the file of its standard input, at the
 * given offset, until another process wakes it. A word that changes without a wake does not end its
 * sleep: it reads it again each second. It prints "woken", or "never" after two minutes. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 2) return 2;
    size_t offset = strtoul(arguments[1], NULL, 10);
    char *page = mmap(NULL, offset + 4, PROT_READ, MAP_SHARED, 0, 0);
    if (page == MAP_FAILED) return 3;
    uint32_t *word = (uint32_t *)(page + offset);
    for (int second = 0; second < 120; second++) {
        struct timespec longest = {1, 0};
        uint32_t seen = *(volatile uint32_t *)word;
        if (!syscall(SYS_futex, word, FUTEX_WAIT, seen, &longest, NULL, 0)) {
            puts("woken");
            return 0;
        }
    }
    puts("never");
    return 1;
}
