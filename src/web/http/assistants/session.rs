//! Questions of one call of a tool, and what every answer needs of the log.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Asking;
use super::page::{Cites, Statement};
use crate::core::model::{Resource, Seq};
use crate::core::rights::Sight;
use crate::core::wire::Header;
use crate::query::Question;
use crate::query::coverage_notes::Covered;
use crate::query::questions::coverage::Cover;
use crate::query::questions::show::Show;
use crate::query::questions::tail::{self, Tail};
use crate::query::render::{Exit, Failure};
use crate::query::select::{Filters, Select};

/// An entry, as far as statements need it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) cluster: String,
    pub(super) epoch: String,
    pub(super) seq: u64,
    pub(super) time: Option<Timestamp>,
    /// Full name of its resource.
    pub(super) resource: String,
    /// Namespace of its object; empty where there is none.
    pub(super) namespace: String,
    /// Name of its object; empty where it is of none.
    pub(super) name: String,
}

impl Place {
    pub(super) fn of(line: &[u8]) -> Result<Self, Failure> {
        let header = Header::parse(line).map_err(|error| Failure::internal(format!("an entry is damaged: {error}")))?;
        Ok(Self {
            cluster: header.cluster.name.to_string(),
            epoch: header.epoch.to_string(),
            seq: header.seq,
            time: header.time.parse().ok(),
            resource: full_name(&header.resource, &header.api_version),
            namespace: header.namespace.as_deref().unwrap_or_default().to_owned(),
            name: header.name.as_deref().unwrap_or_default().to_owned(),
        })
    }

    pub(super) fn states(&self, cites: Cites, kind: &str) -> Statement {
        let (cluster, epoch, kind) = (self.cluster.clone(), self.epoch.clone(), kind.to_owned());
        Statement { cluster, epoch, seq: self.seq, cites, kind, data: String::new(), cut: false }
    }
}

/// `plural.group` of a resource.
pub(super) fn full_name(resource: &str, api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{resource}.{group}"),
        None => resource.to_owned(),
    }
}

/// Questions of one call.
pub(super) struct Session<'a> {
    asking: &'a dyn Asking,
    cluster: Option<String>,
    /// The namespaces that are asked for, of who may not see all; else none.
    scope: Vec<String>,
    notes: RefCell<Vec<String>>,
    places: RefCell<HashMap<u64, Option<Place>>>,
    /// The newest entry; none where the log is empty.
    pub(super) head: Option<Place>,
    /// Resources that the log knows.
    pub(super) resources: Vec<Resource>,
}

impl<'a> Session<'a> {
    /// Looks at the newest entry.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub(super) fn new(asking: &'a dyn Asking, cluster: Option<String>, namespaces: &[String]) -> Result<Self, Failure> {
        let mut session = Self {
            asking,
            cluster,
            scope: Vec::new(),
            notes: RefCell::default(),
            places: RefCell::default(),
            head: None,
            resources: Vec::new(),
        };
        // Of what is asked for: to look for what somebody may see elsewhere could take long.
        let is_narrowed = match asking.sight() {
            Sight::All => false,
            Sight::Only(visit) => visit.sees_everything() != Some(true),
        };
        if is_narrowed {
            session.scope = namespaces.to_vec();
        }
        if let Err(failure) = session.begin() {
            // A server of one cluster knows it by no name, and who asks may.
            let Some(name) = session.cluster.take().filter(|_| failure.exit() == Exit::Usage) else {
                return Err(failure);
            };
            let is_it = session.begin().is_ok() && session.head.as_ref().is_some_and(|head| head.cluster == name);
            if !is_it {
                return Err(failure);
            }
        }
        // What is said of the newest entry is not about what is asked for.
        session.notes.take();
        Ok(session)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let (mut resources, mut head) = (Vec::new(), None);
        let only = Filters { namespaces: self.scope.clone(), ..Filters::default() };
        let select = Select { only, ..Select::default() };
        self.each(Tail { select, last: Some(1), ..Tail::default() }, &mut |item| {
            match item {
                tail::Item::Begin { resources: known, .. } => resources = known,
                tail::Item::Entry(line) => head = Some(Place::of(&line.0.line)?),
                tail::Item::Rewrite(..) | tail::Item::Pause => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(head) = &head {
            self.places.borrow_mut().insert(head.seq, Some(head.clone()));
        }
        (self.head, self.resources) = (head, resources);
        Ok(())
    }

    /// Asks a question, and takes its items until `take` breaks off, which asks nothing itself: the answer may come from afar.
    ///
    /// # Errors
    /// As the question fails, and as `take` does.
    pub(super) fn each<Q: Question>(
        &self,
        question: Q,
        take: &mut dyn FnMut(Q::Item) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let bug = |error: serde_json::Error| Failure::internal(format!("a question or an item is no JSON: {error}"));
        let question = serde_json::value::to_raw_value(&question).map_err(bug)?;
        let mut broken = false;
        let answered = self.asking.ask(
            Q::NAME,
            &question,
            self.cluster.as_deref(),
            &|note| self.notes.borrow_mut().push(note.to_owned()),
            &mut |item: Box<RawValue>| {
                let item = serde_json::from_str(item.get()).map_err(bug)?;
                broken = take(item)?.is_break();
                if broken { Err(Failure::new(Exit::Done, "")) } else { Ok(()) }
            },
        );
        if broken { Ok(()) } else { answered }
    }

    /// Asks a question, and returns all items.
    ///
    /// # Errors
    /// As the question fails.
    pub(super) fn all<Q: Question>(&self, question: Q) -> Result<Vec<Q::Item>, Failure> {
        let mut items = Vec::new();
        self.each(question, &mut |item| {
            items.push(item);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(items)
    }

    /// Reports whether who asks may see less than all of the log.
    pub(super) fn is_narrowed(&self) -> bool {
        !matches!(self.asking.sight(), Sight::All)
    }

    /// Returns the sentences beside the answers.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.take()
    }

    /// Adds a sentence beside the answer.
    pub(super) fn note(&self, text: &str) {
        self.notes.borrow_mut().push(text.to_owned());
    }

    /// Looks up an entry; none where it is not kept.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub(super) fn place(&self, seq: u64) -> Result<Option<Place>, Failure> {
        if let Some(known) = self.places.borrow().get(&seq) {
            return Ok(known.clone());
        }
        let found = match self.all(Show { seq: Seq(seq) }) {
            Ok(shown) => shown.first().map(|shown| Place::of(&shown.entry.0.line)).transpose()?,
            Err(failure) if failure.exit() == Exit::No => None,
            Err(failure) => return Err(failure),
        };
        self.places.borrow_mut().insert(seq, found.clone());
        Ok(found)
    }

    /// Begins a statement that cites an entry; where it is not kept, the log up to its newest entry.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub(super) fn cite(&self, seq: Option<u64>, kind: &str) -> Result<Statement, Failure> {
        let place = seq.map_or(Ok(None), |seq| self.place(seq))?;
        if let Some(place) = place {
            return Ok(place.states(Cites::Entry, kind));
        }
        let head = self.head.as_ref().ok_or_else(|| Failure::no("the journal has no entries yet"))?;
        Ok(head.states(Cites::Log, kind))
    }

    /// Begins a statement that cites an entry which is read later: it has no epoch yet.
    pub(super) fn unread(&self, seq: Option<u64>, kind: &str) -> Statement {
        let (cluster, epoch, kind) = (String::new(), String::new(), kind.to_owned());
        Statement {
            cluster,
            epoch,
            seq: seq.unwrap_or_default(),
            cites: Cites::Entry,
            kind,
            data: String::new(),
            cut: false,
        }
    }

    /// Asks what the log covers from its beginning on, as far as that is asked for.
    pub(super) fn whole(&self) -> Cover {
        Cover { namespaces: self.scope.clone(), ..Cover::default() }
    }

    /// Returns what the log covers of a time.
    ///
    /// # Errors
    /// Where the log cannot be read, or a resource is not known.
    pub(super) fn covered(&self, question: Cover) -> Result<Option<Covered>, Failure> {
        Ok(self.all(question)?.into_iter().next())
    }
}
