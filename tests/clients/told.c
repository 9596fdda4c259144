/* An NVML program that asks about device 0 what else tells of processes: its sessions of the encoder and of frame capture,
 * its accounts, and the memory that confidential computing protects. usage: told PID
 *
 *   encoder RESULT COUNT RESULT COUNT FOUND    how many there are; room for 64, and whether that process is there
 *   capture RESULT COUNT RESULT COUNT FOUND    the same of frame capture
 *   short RESULT COUNT                         room for one session of the encoder where there are two or more
 *   accounts RESULT COUNT RESULT COUNT FOUND   as the first of the processes that have accounts
 *   account RESULT MOST RESULT PID MOST        that process's account in both versions: the most memory it had
 *   nowhere RESULT RESULT                      without a place for an account
 *   protected RESULT TOTAL USED FREE           in MiB
 *
 * A function that the library lacks has the answer `none`. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned session, pid, rest[6]; } encoder;
typedef struct { unsigned session, pid, rest[10]; } capture;
typedef struct { unsigned busy, memory; unsigned long long most, time, start; unsigned runs, rest[5]; } account_v1;
typedef struct { unsigned pid, runs, busy, memory; unsigned long long most, rest[5]; } account_v2;

static void *library, *device;
#define CALL(name, types) ((int (*) types)dlsym(library, name))
enum { ROOM = 64 };

/* Of entries of so many numbers, of which the one at `at` is the pid. */
static void listed(const char *word, const char *name, unsigned numbers, unsigned at, unsigned wanted) {
    static unsigned list[ROOM * 12];
    int (*ask)(void *, unsigned *, void *) = (int (*)(void *, unsigned *, void *))dlsym(library, name);
    unsigned many = 0, count = ROOM, found = 0;
    if (!ask) {
        printf("%s none\n", word);
        return;
    }
    int first = ask(device, &many, NULL), second = ask(device, &count, list);
    for (unsigned i = 0; !second && i < count; i++) found |= list[i * numbers + at] == wanted;
    printf("%s %d %u %d %u %u\n", word, first, many, second, second ? 0 : count, found);
}

int main(int argc, char **argv) {
    unsigned wanted = argc > 1 ? (unsigned)atoi(argv[1]) : 0, one = 1;
    unsigned long long memory[3] = {0};
    encoder first;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    listed("encoder", "nvmlDeviceGetEncoderSessions", sizeof(encoder) / 4, 1, wanted);
    listed("capture", "nvmlDeviceGetFBCSessions", sizeof(capture) / 4, 1, wanted);
    if (dlsym(library, "nvmlDeviceGetEncoderSessions")) {
        int result = CALL("nvmlDeviceGetEncoderSessions", (void *, unsigned *, encoder *))(device, &one, &first);
        printf("short %d %u\n", result, one);
    }
    listed("accounts", "nvmlDeviceGetAccountingPids", 1, 0, wanted);
    if (dlsym(library, "nvmlDeviceGetAccountingStats_v2")) {
        account_v1 old = {0};
        account_v2 new = {.pid = wanted};
        int (*ask)(void *, unsigned, account_v1 *) = CALL("nvmlDeviceGetAccountingStats", (void *, unsigned, account_v1 *));
        int (*ask_v2)(void *, account_v2 *) = CALL("nvmlDeviceGetAccountingStats_v2", (void *, account_v2 *));
        int result = ask(device, wanted, &old), result_v2 = ask_v2(device, &new);
        if (result) old.most = 0;
        if (result_v2) new.most = 0;
        printf("account %d %llu %d %u %llu\n", result, old.most, result_v2, new.pid, new.most);
        result = ask(device, wanted, NULL);
        printf("nowhere %d %d\n", result, ask_v2(device, NULL));
    }
    if (dlsym(library, "nvmlDeviceGetConfComputeProtectedMemoryUsage")) {
        int result = CALL("nvmlDeviceGetConfComputeProtectedMemoryUsage", (void *, void *))(device, memory);
        printf("protected %d %llu %llu %llu\n", result, memory[0] >> 20, memory[2] >> 20, memory[1] >> 20);
    }
    return 0;
}
