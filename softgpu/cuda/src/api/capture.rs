//! Stream capture.
