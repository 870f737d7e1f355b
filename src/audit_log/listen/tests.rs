//! Requests of every sort.
