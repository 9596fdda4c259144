//! Memory and semaphores of other APIs, graphics, multicast: there are none on this device, so
//! every function of the families answers `CUDA_ERROR_NOT_SUPPORTED` (which the build makes for
//! what no file here implements). The attributes that announce them are 0.
