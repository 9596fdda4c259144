//! How a program finds a function: `dlsym` and `cuGetProcAddress`.

pub(crate) mod dlsym;
pub(crate) mod lookup;
