//! Modules, libraries and the built-in kernels.
