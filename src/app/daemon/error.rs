//! Errors that end the daemon.

use super::{BindError, ClusterError, DeliveryError, JournalError, SourceManagerError};
use crate::audit_log::AuditLogError;

/// Error that ended the daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The journal cannot be used, or not any more.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file or address that the configuration names cannot be used.
    #[error("{0}")]
    Config(String),
    /// The HTTP endpoints cannot be served.
    #[error(transparent)]
    Http(#[from] BindError),
    /// There is no way to an API server.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The operating system refused.
    #[error("{0}")]
    Io(String),
    /// A part ended although nobody asked it to.
    #[error("{name}: {why}")]
    Task {
        /// Which.
        name: String,
        /// How.
        why: String,
    },
    /// A second signal came before everything had ended.
    #[error("stopped at once; the next start reads again what was not yet on disk")]
    Hurried,
}

/// Error that ended a task of the daemon.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    #[error(transparent)]
    SourceManager(#[from] SourceManagerError),
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
    #[error(transparent)]
    Http(#[from] std::io::Error),
}

impl TaskError {
    pub(super) fn into_daemon(self, name: String) -> DaemonError {
        match self {
            Self::SourceManager(SourceManagerError::Journal(error))
            | Self::Delivery(DeliveryError::Journal(error))
            | Self::AuditLog(AuditLogError::Journal(error))
            | Self::Journal(error) => error.into(),
            other @ (Self::SourceManager(_) | Self::AuditLog(_) | Self::Http(_)) => {
                DaemonError::Task { name, why: other.to_string() }
            }
        }
    }
}
