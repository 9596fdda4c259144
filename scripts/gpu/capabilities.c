/* Capabilities of the driver and of device 0, one `name value` a line. */
#include "driver.h"

/* Numbers of CUdevice_attribute, from the public documentation. */
static const struct { const char *name; int number; } attributes[] = {
    {"compute_capability_major", 75}, {"compute_capability_minor", 76}, {"multiprocessors", 16},
    {"integrated", 18},               {"unified_addressing", 41},       {"managed_memory", 83},
    {"concurrent_managed_access", 89}, {"virtual_memory_management", 102}, {"memory_pools", 115},
    {"posix_fd_handles", 103},        {"compute_mode", 20},             {"compute_preemption", 90},
};

int main(void) {
    int version, device;
    CU("cuInit", (unsigned), (0));
    CU("cuDriverGetVersion", (int *), (&version));
    CU("cuDeviceGet", (int *, int), (&device, 0));
    printf("cuda_version %d\n", version);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        int value = 0;
        CU("cuDeviceGetAttribute", (int *, int, int), (&value, attributes[i].number, device));
        printf("%s %d\n", attributes[i].name, value);
    }
    return 0;
}
