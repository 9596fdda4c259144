/* Whether the kernel has the barrier of a process's threads (membarrier, private expedited): status
 * 0 if it has. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    enum { QUERY = 0, PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };
    long wanted = PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED, offered = syscall(SYS_membarrier, QUERY, 0, 0);
    return offered < 0 || (offered & wanted) != wanted;
}
