//! The three functions of `cudaProfiler.h`.
