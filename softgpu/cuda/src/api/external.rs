//! Memory and semaphores of other APIs, graphics, multicast: this device supports none of them.
//! Every function of these families returns `CUDA_ERROR_NOT_SUPPORTED` (the build script generates
//! the functions that no file implements), and their attributes are 0.
