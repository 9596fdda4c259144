/* A stand-in for the driver's lookup: it exports some functions, lacks others (cuGetProcAddress without a suffix, cuMemAllocAsync),
   knows one variant and one function newer than any table and one that no table has, and answers a function without its per-thread twin for any flags. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int running;
int cuInit(unsigned flags) { if (flags) return 1; running = 1; return 0; }
int cuDriverGetVersion(int *version) { *version = 99000; return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return running ? 0 : 3; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 1; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
static int newer_init(unsigned flags) { (void)flags; return 0; }
int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status) {
  (void)flags;
  *pfn = NULL;
  if (!strcmp(name, "cuInit")) *pfn = version >= 98000 ? (void *)newer_init : (void *)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) *pfn = (void *)cuDriverGetVersion;
  if (!strcmp(name, "cuNewest") || !strcmp(name, "cuEGLInit")) *pfn = (void *)newer_init;
  if (!strcmp(name, "cuStreamSynchronize")) *pfn = (void *)cuStreamSynchronize;
  if (!strcmp(name, "cuGetProcAddress") && version >= 12000) *pfn = (void *)cuGetProcAddress_v2;
  if (status) *status = *pfn ? 0 : 1;
  return 0;
}
