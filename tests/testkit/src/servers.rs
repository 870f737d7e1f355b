//! Servers that sinks deliver to, each started for one test.

pub mod elasticsearch;
pub mod journald;
pub mod kafka;
pub mod nats;
pub mod otlp;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod s3;
pub mod syslog;
