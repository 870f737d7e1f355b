//! The sources over the simulated API server.
