//! Rules and incidents.
