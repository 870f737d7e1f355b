//! Reading the cluster: every watched resource is a *source*, a pure [`machine`] and the thin driver here.

pub mod classify;
pub mod decode;
pub mod discovery;
pub mod frame;
pub mod machine;
pub mod select;
