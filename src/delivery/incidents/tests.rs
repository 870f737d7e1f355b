//! Windows and their incidents.
