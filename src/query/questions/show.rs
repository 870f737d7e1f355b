//! One entry.

use serde::{Deserialize, Serialize};

use crate::core::k8s::audited::Actor;
use crate::core::model::Seq;
use crate::query::line::Line;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};

/// Asks for an entry by its seq.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Show {
    pub(crate) seq: Seq,
}

/// An entry, and its sender.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) entry: Line,
    /// Sender of the request, as the API server's audit log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Actor>,
    /// What the audit log has beyond managedFields, as a sentence.
    pub(crate) beyond: String,
}

/// Says to who may not see all of the log that there is no entry for it, whatever the reason is.
pub(crate) fn unseen(seq: Seq) -> Failure {
    Failure::no(format!("entry {seq} is not here, or not yours to see"))
}

impl Question for Show {
    const NAME: &'static str = "show";
    type Item = Shown;

    /// # Errors
    /// Exit 1 where there is no such entry, with those that there are.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Shown>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        if let Some(stored) = reader.entry(self.seq)? {
            let actor = object::actor_of(&mut reader, self.seq)?;
            let beyond = if stored.op.is_change() {
                object::beyond(&mut reader, Some(self.seq), actor.as_ref())?
            } else {
                String::new()
            };
            return put(Shown { entry: stored.into(), actor, beyond });
        }
        let (oldest, head) = (reader.oldest()?, reader.head()?);
        if reader.is_narrowed() {
            return Err(unseen(self.seq));
        }
        Err(Failure::no(if head == Seq(0) {
            "the journal has no entries yet".to_owned()
        } else {
            format!("there is no entry {}: the journal has {oldest} to {head}", self.seq)
        }))
    }
}
