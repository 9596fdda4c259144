//! Arrays and mipmapped arrays.
