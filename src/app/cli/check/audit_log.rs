//! Checks of `[[audit_log]]`: files that can be read, and addresses that are free.

use std::fs;

use super::Findings;
use crate::app::config::Config;
use crate::audit_log::file;
use crate::audit_log::listen::Receiver;
use crate::core::net::server::Listen;

impl Findings {
    /// Looks at each source of the audit log. A daemon that runs has the addresses.
    pub(super) async fn audit_logs(&mut self, config: &Config, running: bool) {
        for source in &config.audit_log {
            let name = source.name();
            if let Some(path) = &source.file {
                match file::look(path) {
                    Ok(()) => self.good("audit-log-readable", format!("{name}: {} can be read", path.display())),
                    Err(text) => self.bad("audit-log-unreadable", format!("{name}: {text}")),
                }
            }
            if let Some(listen) = source.listen.as_ref().filter(|_| !running) {
                match Receiver::bind(source).await.map(drop) {
                    Ok(()) => {
                        if let Listen::Unix(path) = listen {
                            // It was made by this check; the daemon makes its own.
                            drop(fs::remove_file(path));
                        }
                        self.good("audit-log-free", format!("{name}: the address {listen} is free"));
                    }
                    Err(error) => self.bad("audit-log-unusable", error.to_string()),
                }
            }
        }
    }
}
