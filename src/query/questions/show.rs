//! One entry.

use serde::{Deserialize, Serialize};

use crate::core::model::Seq;
use crate::query::line::Line;
use crate::query::render::Failure;
use crate::query::{Log, Put, Question};

/// Asks for an entry by its seq.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Show {
    pub(crate) seq: Seq,
}

impl Question for Show {
    const NAME: &'static str = "show";
    type Item = Line;

    /// # Errors
    /// Exit 1 where there is no such entry, with those that there are.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Line>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        if let Some(stored) = reader.entry(self.seq)? {
            return put(stored.into());
        }
        let (oldest, head) = (reader.oldest()?, reader.head()?);
        Err(Failure::no(if head == Seq(0) {
            "the journal has no entries yet".to_owned()
        } else {
            format!("there is no entry {}: the journal has {oldest} to {head}", self.seq)
        }))
    }
}
