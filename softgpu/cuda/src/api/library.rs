//! Libraries and kernels.
