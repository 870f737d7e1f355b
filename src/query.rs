//! Questions about the log, and their answers as types.
//!
//! A question is a value, and so is each item of its answer: both can be sent to another machine. A `Log` answers it, without a
//! terminal, HTTP or the configuration. The commands print the items; `--server` sends the question to another daemon, which
//! answers it from its own journal; the timeline page gets the same answers as JSON. So all of them say the same.
//!
//! It may use `core` and `journal`. Begin with `Question`, and with `questions::show`, which is the shortest; `timeline` has
//! the questions of the page. [`churn`] and [`status`] count and collect, and [`render`] writes entries and objects for people, and also finds the object that a question names (`object`) and walks back through its history for `blame`.
//!
//! # Examples
//!
//! ```
//! use decklog::query::render::row::{plural, span};
//!
//! assert_eq!(format!("{} in {}", plural(2, "write", "writes"), span(90)), "2 writes in 1m30s");
//! ```

pub(crate) mod causes;
pub mod churn;
pub(crate) mod coverage;
pub(crate) mod coverage_notes;
pub(crate) mod difference;
pub(crate) mod drift;
pub(crate) mod line;
pub(crate) mod moment;
pub(crate) mod ownership;
pub(crate) mod provenance;
pub(crate) mod questions;
pub mod render;
pub(crate) mod rewrites;
pub(crate) mod select;
pub mod status;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod timeline;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::core::rights::{Refusal, Sight, Undecided};
use crate::journal::Reader;
use crate::query::render::clock::Clock;
use crate::query::render::{Exit, Failure};
use timeline::outlines::Index;

/// A question about the log.
pub(crate) trait Question: Serialize + DeserializeOwned {
    /// Its name in a request: that of the command that asks it, if one does.
    const NAME: &'static str;
    /// A part of the answer. Large answers have many.
    type Item: Serialize + DeserializeOwned;

    /// Answers the question, and hands out each item as soon as it is known.
    ///
    /// # Errors
    /// The sentence for whoever asks, with the exit code of a command.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Self::Item>) -> Result<(), Failure>;
}

/// Takes the items of an answer. It fails where nobody wants more of them.
pub(crate) type Put<'p, T> = dyn FnMut(T) -> Result<(), Failure> + 'p;

/// The log that a question is asked of, and whoever asks it.
pub(crate) struct Log<'l> {
    /// The state directory.
    pub(crate) dir: PathBuf,
    /// Whose rights hold.
    sight: Sight,
    /// The present, and the zone of whoever asks.
    pub(crate) clock: Clock,
    /// Takes sentences beside the answer.
    note: &'l dyn Fn(&str),
    /// Reports whether whoever asked has gone.
    is_gone: &'l dyn Fn() -> bool,
    /// Ends reading where it is set.
    stop: Option<Arc<AtomicBool>>,
    /// Outlines that are at hand.
    index: Index,
    /// Where parts of the answer are sent before all of it is known.
    lend: Option<&'l Lend<'l>>,
}

/// Gives back what others wait for, does something that blocks, and takes it again.
pub(crate) type Lend<'l> = dyn Fn(&mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> + 'l;

impl<'l> Log<'l> {
    /// The log in a state directory, for somebody with these rights.
    pub(crate) fn new(
        dir: PathBuf,
        sight: Sight,
        clock: Clock,
        note: &'l dyn Fn(&str),
        is_gone: &'l dyn Fn() -> bool,
    ) -> Self {
        Self { dir, sight, clock, note, is_gone, stop: None, index: Index::default(), lend: None }
    }

    /// Ends every reading of the journal once the flag is set.
    pub(crate) fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Uses outlines that are at hand.
    pub(crate) fn with_outlines(self, index: Index) -> Self {
        Self { index, ..self }
    }

    /// Reports whether who asks sees all of the log, by the rights of this machine.
    pub(crate) const fn sees_all(&self) -> bool {
        matches!(self.sight, Sight::All)
    }

    /// Sends parts of the answer before all of it is known, and lends what others wait for while rights are reviewed in between.
    pub(crate) fn lending(self, lend: &'l Lend<'l>) -> Self {
        Self { lend: Some(lend), ..self }
    }

    /// Goes on for as long as who asks likes. Such an answer keeps its place while rights are reviewed.
    pub(crate) fn follow(&self) {
        if let Sight::Only(visit) = &self.sight {
            visit.follow();
        }
    }

    /// Reads what an answer goes on with when parts of it are sent already. What that met undecided is decided, and it is read again;
    /// where the whole answer is asked for again, that is an error.
    ///
    /// # Errors
    /// As `read`, and where the API server does not decide.
    pub(crate) fn decided<T>(&self, mut read: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        loop {
            let found = read();
            if !self.sight.is_undecided() {
                return found;
            }
            self.settle()?;
        }
    }

    /// Checks, before something of an answer is sent, that it stands: nothing that it met is undecided, and no right on which it stands
    /// has been taken away.
    ///
    /// # Errors
    /// Where it does not.
    pub(crate) fn stands(&self) -> Result<(), Failure> {
        let Sight::Only(visit) = &self.sight else { return Ok(()) };
        if visit.is_undecided() {
            return Err(Refusal::from(Undecided).into());
        }
        if self.lend.is_some() && visit.has_run_out() {
            self.settle()?;
        }
        visit.went_on();
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        let settle = &mut || Ok(self.sight.settle()?);
        match (&self.sight, self.lend) {
            (Sight::Only(visit), Some(_)) if visit.follows() => settle(),
            (_, Some(lend)) => lend(settle),
            (_, None) => Err(Refusal::from(Undecided).into()),
        }
    }

    /// Opens the journal, as far as who asks may see it.
    ///
    /// # Errors
    /// Where there is none, it cannot be read, or the cluster does not know who asks.
    pub(crate) fn open(&self) -> Result<Reader, Failure> {
        self.stoppable(Reader::seen_by(&self.dir, &self.sight)?)
    }

    /// Opens all of the journal, for a question that is about nothing less.
    ///
    /// # Errors
    /// As [`Log::open`], and where who asks may not see all of it.
    pub(crate) fn open_all(&self) -> Result<Reader, Failure> {
        if let Sight::Only(_) = &self.sight {
            self.open()?.sees_all()?;
        }
        self.stoppable(Reader::open(&self.dir)?)
    }

    /// Ends the readings of a reader once nobody waits for them any more.
    fn stoppable(&self, mut reader: Reader) -> Result<Reader, Failure> {
        if let Some(stop) = &self.stop {
            reader.stop_at(Arc::clone(stop))?;
        }
        Ok(reader)
    }

    /// Says a sentence beside the answer.
    pub(crate) fn note(&self, text: &str) {
        (self.note)(text);
    }

    /// Says a sentence that begins with `note: `.
    pub(crate) fn remark(&self, text: &str) {
        (self.note)(&format!("note: {text}"));
    }

    /// Reports whether nobody waits for the answer any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) || (self.is_gone)()
    }
}

/// A part of an answer on its way: one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Frame<T> {
    /// An item.
    Item(T),
    /// A sentence beside the answer.
    Note(String),
    /// Nothing has come for a while, and the answer goes on.
    Alive,
    /// The end, which every whole answer has.
    End(End),
}

/// End of an answer.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Exit code of a command that got this answer; 0 where all is well.
    pub(crate) exit: u8,
    /// The sentence of a failure; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
}

impl From<Result<(), Failure>> for End {
    fn from(result: Result<(), Failure>) -> Self {
        result.map_or_else(
            |failure| Self { exit: failure.exit() as u8, text: failure.text().to_owned() },
            |()| Self::default(),
        )
    }
}

impl From<End> for Result<(), Failure> {
    fn from(end: End) -> Self {
        let exit = Exit::of(end.exit);
        if exit == Exit::Done { Ok(()) } else { Err(Failure::new(exit, end.text)) }
    }
}

/// Names of all questions.
pub(crate) const NAMES: [&str; 26] = [
    questions::tail::Tail::NAME,
    questions::history::History::NAME,
    questions::causes::Causes::NAME,
    questions::show::Show::NAME,
    questions::get::Get::NAME,
    questions::diff::Diff::NAME,
    questions::blame::Blame::NAME,
    questions::why::Why::NAME,
    questions::drift::Drifting::NAME,
    questions::churn::Churned::NAME,
    questions::coverage::Cover::NAME,
    questions::status::Statuses::NAME,
    questions::verify::Verify::NAME,
    questions::names::Names::NAME,
    timeline::overview::Overview::NAME,
    timeline::window::Histogram::NAME,
    timeline::lanes::Lanes::NAME,
    timeline::entries::Entries::NAME,
    timeline::entry::OneEntry::NAME,
    timeline::compare::Compare::NAME,
    timeline::object::ObjectAt::NAME,
    timeline::moments::StateAt::NAME,
    timeline::moments::ChangesBetween::NAME,
    timeline::writers::Writers::NAME,
    timeline::embed::Timeline::NAME,
    timeline::updates::Updates::NAME,
];

/// Answers a question that came as JSON, with items that are JSON.
///
/// # Errors
/// Exit 64 where there is no such question or it cannot be read; else as the question does.
pub(crate) fn answer(
    name: &str,
    question: &str,
    log: &Log<'_>,
    put: &mut Put<'_, Box<RawValue>>,
) -> Result<(), Failure> {
    fn run<Q: Question>(question: &str, log: &Log<'_>, put: &mut Put<'_, Box<RawValue>>) -> Result<(), Failure> {
        let asked: Q = serde_json::from_str(question)
            .map_err(|error| Failure::usage(format!("this is no question {:?}: {error}", Q::NAME)))?;
        let bug = |error: serde_json::Error| Failure::internal(format!("an item cannot be written: {error}"));
        asked.answer(log, &mut |item| {
            let item = serde_json::value::to_raw_value(&item).map_err(bug)?;
            log.stands()?;
            put(item)
        })
    }
    let run = match name {
        questions::tail::Tail::NAME => run::<questions::tail::Tail>,
        questions::history::History::NAME => run::<questions::history::History>,
        questions::causes::Causes::NAME => run::<questions::causes::Causes>,
        questions::show::Show::NAME => run::<questions::show::Show>,
        questions::get::Get::NAME => run::<questions::get::Get>,
        questions::diff::Diff::NAME => run::<questions::diff::Diff>,
        questions::blame::Blame::NAME => run::<questions::blame::Blame>,
        questions::why::Why::NAME => run::<questions::why::Why>,
        questions::drift::Drifting::NAME => run::<questions::drift::Drifting>,
        questions::churn::Churned::NAME => run::<questions::churn::Churned>,
        questions::coverage::Cover::NAME => run::<questions::coverage::Cover>,
        questions::status::Statuses::NAME => run::<questions::status::Statuses>,
        questions::verify::Verify::NAME => run::<questions::verify::Verify>,
        questions::names::Names::NAME => run::<questions::names::Names>,
        timeline::overview::Overview::NAME => run::<timeline::overview::Overview>,
        timeline::window::Histogram::NAME => run::<timeline::window::Histogram>,
        timeline::lanes::Lanes::NAME => run::<timeline::lanes::Lanes>,
        timeline::entries::Entries::NAME => run::<timeline::entries::Entries>,
        timeline::entry::OneEntry::NAME => run::<timeline::entry::OneEntry>,
        timeline::compare::Compare::NAME => run::<timeline::compare::Compare>,
        timeline::object::ObjectAt::NAME => run::<timeline::object::ObjectAt>,
        timeline::moments::StateAt::NAME => run::<timeline::moments::StateAt>,
        timeline::moments::ChangesBetween::NAME => run::<timeline::moments::ChangesBetween>,
        timeline::writers::Writers::NAME => run::<timeline::writers::Writers>,
        timeline::embed::Timeline::NAME => run::<timeline::embed::Timeline>,
        timeline::updates::Updates::NAME => run::<timeline::updates::Updates>,
        _ => {
            let names = NAMES.join(", ");
            return Err(Failure::usage(format!("a server answers nothing but questions about its log: {names}")));
        }
    };
    run(question, log, put)
}

/// Reports whether a daemon runs on the journal in a directory.
fn is_running(dir: &Path) -> bool {
    status::daemon(dir).running
}

/// Returns a time, given in microseconds since 1970, in RFC 3339 and UTC, with microseconds.
pub(crate) fn stamp(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}

/// A word of a fixed set, in an answer.
pub(crate) type Word = Cow<'static, str>;

/// Serializes a time as [`stamp`] writes it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn as_stamp<S: Serializer>(micros: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&stamp(*micros))
}

/// Serializes a time, or null, as [`stamp`] writes it.
#[expect(clippy::ref_option, reason = "serde gives a reference")]
fn as_stamps<S: Serializer>(micros: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    match micros {
        Some(micros) => serializer.serialize_some(&stamp(*micros)),
        None => serializer.serialize_none(),
    }
}

/// Reads a time that [`as_stamp`] wrote.
fn from_stamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Timestamp::deserialize(deserializer)?.as_microsecond())
}

/// Reads a time, or null, that [`as_stamps`] wrote.
fn from_stamps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(Option::<Timestamp>::deserialize(deserializer)?.map(Timestamp::as_microsecond))
}
