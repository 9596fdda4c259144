/* An NVML program that asks about device 0 what else tells of processes: its sessions of the encoder and of frame capture,
 * and the memory that confidential computing protects. usage: told PID
 *
 *   encoder RESULT COUNT RESULT COUNT FOUND    how many there are; room for 64, and whether that process is there
 *   capture RESULT COUNT RESULT COUNT FOUND    the same of frame capture
 *   short RESULT COUNT                         room for one session of the encoder where there are two or more
 *   protected RESULT TOTAL USED FREE           in MiB
 *
 * A function that the library lacks has the answer `none`. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned session, pid, rest[6]; } encoder;
typedef struct { unsigned session, pid, rest[10]; } capture;

static void *library, *device;
#define CALL(name, types) ((int (*) types)dlsym(library, name))
enum { ROOM = 64 };

/* Of entries of so many numbers, the second of which is the pid. */
static void sessions(const char *word, const char *name, unsigned numbers, unsigned wanted) {
    static unsigned list[ROOM * 12];
    int (*ask)(void *, unsigned *, void *) = (int (*)(void *, unsigned *, void *))dlsym(library, name);
    unsigned many = 0, count = ROOM, found = 0;
    if (!ask) {
        printf("%s none\n", word);
        return;
    }
    int first = ask(device, &many, NULL), second = ask(device, &count, list);
    for (unsigned i = 0; !second && i < count; i++) found |= list[i * numbers + 1] == wanted;
    printf("%s %d %u %d %u %u\n", word, first, many, second, second ? 0 : count, found);
}

int main(int argc, char **argv) {
    unsigned wanted = argc > 1 ? (unsigned)atoi(argv[1]) : 0, one = 1;
    unsigned long long memory[3] = {0};
    encoder first;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    sessions("encoder", "nvmlDeviceGetEncoderSessions", sizeof(encoder) / 4, wanted);
    sessions("capture", "nvmlDeviceGetFBCSessions", sizeof(capture) / 4, wanted);
    if (dlsym(library, "nvmlDeviceGetEncoderSessions")) {
        int result = CALL("nvmlDeviceGetEncoderSessions", (void *, unsigned *, encoder *))(device, &one, &first);
        printf("short %d %u\n", result, one);
    }
    if (dlsym(library, "nvmlDeviceGetConfComputeProtectedMemoryUsage")) {
        int result = CALL("nvmlDeviceGetConfComputeProtectedMemoryUsage", (void *, void *))(device, memory);
        printf("protected %d %llu %llu %llu\n", result, memory[0] >> 20, memory[2] >> 20, memory[1] >> 20);
    }
    return 0;
}
