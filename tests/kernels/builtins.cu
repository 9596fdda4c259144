// The kernels softgpu knows by name, for real GPUs: same names, same parameters, same results.
//
//   nvcc -cubin -arch=native tests/kernels/builtins.cu     or -ptx, for cuModuleLoadData
//
// scripts/kernels.sh compiles it without a GPU.
//
// Each but `spin_grid` does its whole work whatever the grid. `spin` and `meet` are written by hand as PTX too (cli/sys/src/spin.ptx, meet.ptx): keep them in step.
#include <cstdint>

static __device__ uint64_t globaltimer() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ uint64_t first() { return blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; }
static __device__ uint64_t stride() { return gridDim.x * uint64_t(blockDim.x); }

// A longer step between two looks is time that other contexts had (ns).
static const uint64_t AWAY = 100000;
// It ends after 64 times as long and a second (ns) whoever had the device: where the timer itself ticks more seldom than AWAY, no step would count.
static const uint64_t GIVES_UP = 1000000000;

static __device__ void spin_for(uint64_t ns) {
    uint64_t had = 0, begin = globaltimer(), last = begin;
    while (had < ns) {
        uint64_t now = globaltimer(), step = now - last;
        last = now;
        if (now - begin > 64 * ns + GIVES_UP) return;
        if (step <= AWAY) had += step;
    }
}

extern "C" __global__ void spin(uint64_t ns) { spin_for(ns); }

// `ns` for each block of the grid. One block takes all of it, however many the device holds at one time.
extern "C" __global__ void spin_grid(uint64_t ns) {
    if (blockIdx.x + blockIdx.y + blockIdx.z == 0) spin_for(ns * gridDim.x * gridDim.y * gridDim.z);
}

extern "C" __global__ void meet(uint64_t ns, volatile uint32_t *own, const volatile uint32_t *peer, uint32_t value) {
    spin_for(ns);
    *own = value;
    __threadfence_system();
    while (int32_t(*peer - value) < 0) {}
}

// One word of each page and the last one, from the beginning to the end of its time; their bytes stay as they are.
extern "C" __global__ void hold(uint64_t ns, uint8_t *at, uint64_t n) {
    if (first() != 0) return;
    for (uint64_t begin = globaltimer(), end = begin + ns, now = begin; ; now = globaltimer()) {
        for (uint64_t i = 0; i + 4 <= n; i += 4096) atomicAdd((unsigned *)(at + i), 0u);
        if (n >= 4) atomicAdd((unsigned *)(at + (n / 4 - 1) * 4), 0u);
        if (now >= end) return;
    }
}

extern "C" __global__ void fill(uint32_t *dst, uint64_t n, uint32_t value) {
    for (uint64_t i = first(); i < n; i += stride()) dst[i] = value;
}

extern "C" __global__ void vadd(const float *a, const float *b, float *out, uint64_t n) {
    for (uint64_t i = first(); i < n; i += stride()) out[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float a, const float *x, float *y, uint64_t n) {
    for (uint64_t i = first(); i < n; i += stride()) y[i] = fmaf(a, x[i], y[i]);
}

// FNV-1a with 64 bits: each byte needs the hash of those before it, so one thread does it.
extern "C" __global__ void checksum(const uint8_t *src, uint64_t n, uint64_t *out) {
    if (first() != 0) return;
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t i = 0; i < n; i++) hash = (hash ^ src[i]) * 0x00000100000001b3;
    *out = hash;
}
