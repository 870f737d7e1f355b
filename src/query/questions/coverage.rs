//! Coverage: of which time the log knows everything, and of which it does not.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::query::coverage_notes::{About, Covered};
use crate::query::render::Failure;
use crate::query::select::{Filters, Select};
use crate::query::{Log, Put, Question};

/// Asks what the log covers of a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cover {
    /// Resources as kubectl spells them; all if there are none.
    pub(crate) objects: Vec<String>,
    /// Names of the namespaces; all if there are none.
    pub(crate) namespaces: Vec<String>,
    /// Start of the time; none for the beginning of the log.
    pub(crate) since: Option<Timestamp>,
    /// End of the time; none for now.
    pub(crate) until: Option<Timestamp>,
}

impl Question for Cover {
    const NAME: &'static str = "coverage";
    type Item = Covered;

    /// # Errors
    /// Where the journal cannot be read.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Covered>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let only = Filters { namespaces: self.namespaces, since: self.since, until: self.until, ..Filters::default() };
        only.check(&mut reader, &log.clock)?;
        let select = Select { objects: self.objects, only, ..Select::default() };
        // What is misspelled is said as for the entries.
        crate::query::select::Selection::new(&select, &mut reader, log)?;
        put(About::of(&select, &reader)?.covered(&mut reader, &log.dir, &log.clock)?)
    }
}
