//! Whether what is said of the past is true.
