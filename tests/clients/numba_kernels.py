"""Kernels that numba compiles, compared with numpy: prints a line a kernel with a digest of its results.

    numba_kernels.py

numba must link with the driver (an environment without nvJitLink), because the software GPU runs PTX and no machine code.
"""
import hashlib
import math
import sys
import warnings

import numpy as np
from numba import cuda, float32, int32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

warnings.simplefilter("ignore")
RANDOM = np.random.default_rng(7)


def tell(name, found, wanted, exact=True):
    found = np.asarray(found)
    same = np.array_equal(found, wanted) if exact else np.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    print(name, "right" if same else "WRONG", hashlib.sha256(found.tobytes()).hexdigest()[:16], flush=True)
    if not same:
        print(found.ravel()[:8], np.asarray(wanted).ravel()[:8], file=sys.stderr)
        sys.exit(1)


@cuda.jit
def add(a, b, out):
    at = cuda.grid(1)
    if at < out.size:
        out[at] = a[at] + b[at]


@cuda.jit
def saxpy(factor, x, y):
    for at in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[at] += factor * x[at]


@cuda.jit
def total(values, out):
    part = cuda.shared.array(128, int32)
    at, lane = cuda.grid(1), cuda.threadIdx.x
    part[lane] = values[at] if at < values.size else 0
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half:
        if lane < half:
            part[lane] += part[lane + half]
        cuda.syncthreads()
        half //= 2
    if lane == 0:
        cuda.atomic.add(out, 0, part[0])


@cuda.jit
def histogram(values, bins):
    at = cuda.grid(1)
    if at < values.size:
        cuda.atomic.add(bins, values[at] % bins.size, 1)


@cuda.jit
def product(a, b, out):
    left, right = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    value = float32(0)
    for tile in range(a.shape[1] // 8):
        left[x, y] = a[row, tile * 8 + y]
        right[x, y] = b[tile * 8 + x, column]
        cuda.syncthreads()
        for at in range(8):
            value += left[x, at] * right[at, y]
        cuda.syncthreads()
    out[row, column] = value


@cuda.jit(device=True)
def collatz(number):
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


@cuda.jit
def steps(out):
    at = cuda.grid(1)
    if at < out.size:
        out[at] = collatz(at + 1)


@cuda.jit
def functions(x, out):
    at = cuda.grid(1)
    if at < x.size:
        out[at] = math.sin(x[at]) + math.exp(-x[at]) * math.sqrt(x[at]) + math.log(x[at] + 1) + math.pow(x[at], 1.5) + math.tanh(x[at])


@cuda.jit
def warp_sum(values, out):
    value = values[cuda.grid(1)]
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, distance)
    if cuda.laneid == 0:
        out[cuda.grid(1) // 32] = value


@cuda.jit
def local_sort(values):
    at = cuda.grid(1)
    own = cuda.local.array(8, int32)
    for i in range(8):
        own[i] = values[at, i]
    for i in range(1, 8):
        key, j = own[i], i - 1
        while j >= 0 and own[j] > key:
            own[j + 1] = own[j]
            j -= 1
        own[j + 1] = key
    for i in range(8):
        values[at, i] = own[i]


@cuda.jit
def estimate(states, inside):
    at = cuda.grid(1)
    hits = 0
    for _ in range(50):
        x, y = xoroshiro128p_uniform_float32(states, at), xoroshiro128p_uniform_float32(states, at)
        hits += x * x + y * y <= 1
    cuda.atomic.add(inside, 0, hits)


@cuda.jit
def mandelbrot(out):
    row, column = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        c = complex(column / out.shape[1] * 3 - 2, row / out.shape[0] * 2 - 1)
        z, count = 0j, 0
        while count < 40 and z.real * z.real + z.imag * z.imag < 4:
            z, count = z * z + c, count + 1
        out[row, column] = count


add_reduce = cuda.reduce(lambda a, b: a + b)


def main():
    for kind in (np.float32, np.float64, np.int32, np.int64):
        a, b = (RANDOM.integers(-1000, 1000, 1000).astype(kind) for _ in range(2))
        out = np.zeros_like(a)
        add[8, 128](a, b, out)
        tell(f"add {kind.__name__}", out, a + b)
    x, y = RANDOM.random(777).astype(np.float32), np.ones(777, np.float32)
    wanted = y.astype(np.float64) + 2.5 * x.astype(np.float64)
    saxpy[4, 64](np.float32(2.5), x, y)
    tell("saxpy", y, wanted, exact=False)
    values, out = RANDOM.integers(0, 100, 1000).astype(np.int32), np.zeros(1, np.int32)
    total[8, 128](values, out)
    tell("total", out, [values.sum()])
    bins = np.zeros(10, np.int32)
    histogram[8, 128](values, bins)
    tell("histogram", bins, np.bincount(values % 10, minlength=10))
    a, b = (RANDOM.integers(-9, 9, (32, 32)).astype(np.float32) for _ in range(2))
    out = np.zeros_like(a)
    product[(4, 4), (8, 8)](a, b, out)
    tell("product", out, a @ b)
    out = np.zeros(200, np.int32)
    steps[2, 128](out)
    tell("steps", out, [collatz.py_func(at + 1) for at in range(200)])
    x = np.linspace(0.1, 9, 100)
    out = np.zeros_like(x)
    functions[1, 128](x, out)
    tell("functions", out, np.sin(x) + np.exp(-x) * np.sqrt(x) + np.log(x + 1) + x**1.5 + np.tanh(x), exact=False)
    values, out = RANDOM.integers(0, 100, 128).astype(np.int32), np.zeros(4, np.int32)
    warp_sum[1, 128](values, out)
    tell("warp_sum", out, values.reshape(4, 32).sum(axis=1))
    values = RANDOM.integers(0, 100, (32, 8)).astype(np.int32)
    wanted = np.sort(values, axis=1)
    local_sort[1, 32](values)
    tell("local_sort", values, wanted)
    inside = np.zeros(1, np.int64)
    estimate[2, 64](create_xoroshiro128p_states(128, seed=1), inside)
    tell("estimate", abs(4 * inside / 6400 - math.pi) < 0.1, [True])
    out = np.zeros((24, 32), np.int32)
    mandelbrot[(3, 4), (8, 8)](out)
    tell("mandelbrot", [out.sum() > 3000, out[12, 10] == 40], [True, True])
    values = RANDOM.integers(0, 100, 3000).astype(np.int64)
    tell("reduce", add_reduce(values), values.sum())


main()
