//! How C enumerations, unions and opaque handles are written here: [`c_enum`], [`opaque_debug`],
//! [`handles`].

/// Declares a C enumeration as a transparent integer with one associated constant per value.
///
/// The constants come in groups under the prefix that the C names carry: `"CUDA_ERROR_" {
/// OUT_OF_MEMORY = 2, }` makes `OUT_OF_MEMORY`, whose C name is `CUDA_ERROR_OUT_OF_MEMORY`. A value
/// that is not listed is a value like any other.
macro_rules! c_enum {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($repr:ty);
        $($prefix:literal { $($value:ident = $number:literal),* $(,)? })*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $($(
                #[doc = concat!("`", $prefix, stringify!($value), "`")]
                pub const $value: Self = Self($number);
            )*)*

            /// Every value with its C name, in the header's order; of two names for one value the
            /// first is the answer of [`name`](Self::name).
            pub const NAMES: &'static [($repr, &'static core::ffi::CStr)] = &[$($(
                ($number, match core::ffi::CStr::from_bytes_with_nul(
                    concat!($prefix, stringify!($value), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a C name holds no NUL"),
                }),
            )*)*];

            /// The C name of this value, `None` where CUDA 13.5 has none.
            pub fn c_name(self) -> Option<&'static core::ffi::CStr> {
                Self::NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
            }

            /// [`c_name`](Self::c_name) as text.
            pub fn name(self) -> Option<&'static str> {
                self.c_name()?.to_str().ok()
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };
}

/// `Debug` for a union: which member is valid is known to its user only, so nothing is read.
macro_rules! opaque_debug {
    ($name:ident) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), " { .. }"))
            }
        }
    };
}

/// Declares opaque handles: pointers that only the driver understands, each a type of its own.
///
/// The `unsafe` in it is the promise that a handle may move between threads.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut core::ffi::c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// True for the null handle.
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }

        // SAFETY: the pointer is never dereferenced on our side; to us it is a number, which the
        // driver takes from any thread.
        #[allow(unsafe_code, reason = "the promise that a handle may move between threads")]
        unsafe impl Send for $name {}
        // SAFETY: a shared reference reads the number only, which nothing changes.
        #[allow(unsafe_code, reason = "the promise that a handle may be shared by threads")]
        unsafe impl Sync for $name {}
    )*};
}

pub(crate) use {c_enum, handles, opaque_debug};
