//! Device memory as the API sees it: linear, pitched, managed, pooled, mapped, shared.
