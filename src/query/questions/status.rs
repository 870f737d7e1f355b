//! Every position of a journal and its daemon.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::journal::Reader;
use crate::query::render::Failure;
use crate::query::render::names::Spellings;
use crate::query::status::{self, Alarm, Status};
use crate::query::{Log, Put, Question};

/// Asks for the status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Statuses {
    /// Resources whose sources it names, as kubectl spells them; all if there are none.
    pub(crate) resources: Vec<String>,
    /// Answers also where the journal cannot be read.
    pub(crate) whatever: bool,
}

/// The status, or what is known without the journal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The journal could be read.
    Whole(Box<Status>),
    /// It could not, or is not there.
    Unread(Unread),
}

/// What is known of a daemon whose journal cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unread {
    pub(crate) time: Timestamp,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) error: String,
}

impl Question for Statuses {
    const NAME: &'static str = "status";
    type Item = Report;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Report>) -> Result<(), Failure> {
        let opened = log.open_all();
        if let Err(failure) = &opened
            && failure.refused().is_some()
        {
            return Err(failure.clone());
        }
        let read = || {
            let mut reader = opened?;
            let wanted = wanted(&self.resources, &reader)?;
            let mut status = Status::gather(&mut reader, &log.dir, Timestamp::now())?;
            if let Some(wanted) = wanted {
                status.sources.retain(|source| wanted.iter().any(|name| source.name.split('/').next() == Some(name)));
            }
            Ok::<_, Failure>(status)
        };
        match read() {
            Ok(status) => put(Report::Whole(Box::new(status))),
            Err(failure) if self.whatever => {
                let alarms = status::failed(&log.dir).iter().map(status::failing).collect();
                put(Report::Unread(Unread { time: Timestamp::now(), alarms, error: failure.to_string() }))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// The full names of the resources that were asked for; `None` for all.
fn wanted(resources: &[String], reader: &Reader) -> Result<Option<Vec<String>>, Failure> {
    if resources.is_empty() {
        return Ok(None);
    }
    let spellings = Spellings::load(reader)?;
    let mut wanted = Vec::new();
    for text in resources.iter().flat_map(|text| text.split(',')) {
        let named = spellings.read(text)?;
        if named.name.is_some() {
            return Err(Failure::usage(format!("status takes resources, such as pods, and no single object: {text}")));
        }
        wanted.extend(named.resources.iter().map(|(_, resource)| resource.full_name()));
    }
    Ok(Some(wanted))
}
