//! The simulated server through real HTTP.
