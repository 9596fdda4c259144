/* An NVML program: the answers to the questions for processes' use of device 0, by both functions, once there is a sample.
 * After 2 s there is none. usage: samples PID
 *
 *   info RESULT COUNT FOUND     room for 64 by nvmlDeviceGetProcessesUtilizationInfo, and whether that process is there
 *   room RESULT IS_ANY          how much room is needed, by nvmlDeviceGetProcessUtilization
 *   list RESULT COUNT FOUND     room for 64 by that */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample;
typedef struct { unsigned long long at; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; } info;
typedef struct { unsigned version, count; unsigned long long since; info *entries; } infos;

static void *library;
#define CALL(name, types) ((int (*) types)dlsym(library, name))
#define LIST CALL("nvmlDeviceGetProcessUtilization", (void *, sample *, unsigned *, unsigned long long))
enum { ROOM = 64, NOT_FOUND = 6 };

int main(int argc, char **argv) {
    static sample list[ROOM];
    static info entries[ROOM];
    infos whole = {0};
    unsigned wanted = argc > 1 ? (unsigned)atoi(argv[1]) : 0, count, found = 0;
    int result = NOT_FOUND;
    void *device;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    for (int attempt = 0; result == NOT_FOUND && attempt < 20; attempt++) {
        if (attempt) usleep(100000);
        whole = (infos){sizeof whole | 1 << 24, ROOM, 0, entries};
        result = CALL("nvmlDeviceGetProcessesUtilizationInfo", (void *, infos *))(device, &whole);
    }
    for (unsigned i = 0; !result && i < whole.count; i++) found |= entries[i].pid == wanted;
    printf("info %d %u %u\n", result, result ? 0 : whole.count, found);
    count = 0;
    result = LIST(device, NULL, &count, 0);
    printf("room %d %d\n", result, count > 0);
    count = ROOM, found = 0;
    result = LIST(device, list, &count, 0);
    for (unsigned i = 0; !result && i < count; i++) found |= list[i].pid == wanted;
    printf("list %d %u %u\n", result, result ? 0 : count, found);
    return 0;
}
