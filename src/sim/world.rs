//! A cluster that lives.
