//! The questions of the commands: a file for each, with the name of the command that asks it.

pub(crate) mod blame;
pub(crate) mod causes;
pub(crate) mod churn;
pub(crate) mod coverage;
pub(crate) mod diff;
pub(crate) mod drift;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod names;
mod rewritten;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tail;
pub(crate) mod verify;
pub(crate) mod why;
