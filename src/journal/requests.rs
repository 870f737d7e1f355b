//! Readings of the API server's own request counters, on their way into the journal.

use jiff::Timestamp;

use super::Journal;
use super::error::Result;
use super::writer::Command;

/// Increase of the API server's own request counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Since when. `None`: nothing is known of the time before, and counting begins now.
    pub since: Option<Timestamp>,
    /// Until when.
    pub until: Timestamp,
    /// Requests that were granted, by group and plural of the resource that they change and by verb.
    pub requests: Vec<(String, String, &'static str, u64)>,
}

#[expect(clippy::missing_errors_doc, reason = "it fails in one way, which `JournalError` names")]
impl Journal {
    /// Keeps what the API server's own request counters said, or why they cannot be read.
    pub async fn requests(&self, read: Result<RequestCounts, String>) -> Result {
        self.send(Command::Requests(read), 0).await
    }
}
