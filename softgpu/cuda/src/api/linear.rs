//! Linear and pitched memory.
