//! Messages of incidents at their receiver: what it calls them, which an update needs.

use std::collections::BTreeMap;

use super::{DeliveryError, Driver, Relaxed};
use crate::core::model::Seq;
use crate::journal::Message;
use crate::sink::Receipt;

impl Driver {
    /// Notes what the receiver calls the messages that it took.
    pub(super) fn know_messages(&mut self, name: &str, from: usize, to: usize) {
        // A feed that is reading ahead has none.
        let incidents = self.feed.as_mut().and_then(|feed| feed.incidents.as_mut());
        let Some(incidents) = incidents.filter(|incidents| incidents.notify.updates) else { return };
        let mut receipts: BTreeMap<Seq, Receipt> = self.sink.receipts().into_iter().collect();
        for item in &self.batch[from..to] {
            let Some(incident) = item.incident.as_ref().filter(|incident| incident.digest.is_empty()) else { continue };
            let reference = match receipts.remove(&item.seq) {
                Some(Receipt::Named(reference)) => Some(reference),
                Some(Receipt::Unnamed(why)) => {
                    if !std::mem::replace(&mut self.has_said_unnamed, true) {
                        tracing::warn!(sink = name, seq = incident.first, "messages are not updated: {why}");
                    }
                    continue;
                }
                Some(Receipt::Final(why)) => {
                    self.stats.dropped_updates.fetch_add(1, Relaxed);
                    tracing::warn!(
                        sink = name,
                        seq = incident.first,
                        "{why}; the message of this entry stays as it is"
                    );
                    None
                }
                None if incident.is_update() => Some(incident.reference.clone()),
                None => continue,
            };
            let message = Message {
                incident: incident.key.clone(),
                first: Seq(incident.first),
                last: Seq(incident.last),
                entries: incident.count,
                reference,
            };
            incidents.know(message.clone());
            self.messages.push(message);
        }
    }

    /// Returns the messages that the sink has since the cursor last moved, and the entry up to which those of before are over where
    /// it moves to `upto`.
    pub(super) async fn messages(&mut self, upto: Seq) -> Result<(Vec<Message>, Seq), DeliveryError> {
        let messages = std::mem::take(&mut self.messages);
        if messages.is_empty() {
            return Ok((messages, Seq(0)));
        }
        let over = self.reading(move |feed| feed.forget_messages(upto)).await?;
        Ok((messages, over))
    }
}
