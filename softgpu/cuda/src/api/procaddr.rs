//! `cuGetProcAddress`: which function a name, a version and flags mean.
