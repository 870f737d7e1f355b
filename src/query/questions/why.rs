//! The chain from a field to who set it: the program, the run of the tool behind it, the revision and the person, as far as
//! the objects of the log say.

pub(crate) mod behind;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::blame::{Blame, Blamed};
use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::Seq;
use crate::query::coverage::Uncovered;
use crate::query::provenance::Provenance;
use crate::query::render::blame::Set;
use crate::query::render::names::At;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};
use behind::Behind;

/// Asks why the fields of an object are as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    /// KIND/NAME, or KIND.
    pub(crate) object: String,
    /// The name if `object` is a kind alone, and paths; all that somebody set on purpose if there are none.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
    /// The moment; now if there is none.
    #[serde(default)]
    pub(crate) at: Option<At>,
}

/// The object, and the writes that made it what it is, newest first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Number of GAPs in the history that was looked at.
    pub(crate) gaps: usize,
    pub(crate) writes: Vec<Explained>,
    /// The part of its history that the log does not cover.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) uncovered: Vec<Uncovered>,
}

/// A field, with its value.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    pub(crate) path: String,
    pub(crate) value: Box<RawValue>,
}

/// An owner from whose template a value was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Via {
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The entry that set it there; absent where the log does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
}

/// A write of some fields, and where it comes from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Explained {
    pub(crate) fields: Vec<Value>,
    /// The entry of the object that has them first; absent where the log does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) time: String,
    pub(crate) set: Set,
    /// The owners that the values came from, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) via: Vec<Via>,
    /// Those who made the write, of the farthest owner where there is one.
    pub(crate) managers: Vec<Manager>,
    /// Sender of the request, as the API server's audit log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Actor>,
    /// What the object itself says of the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    pub(crate) provenance: Provenance,
}

impl Explained {
    /// Reports whether two fields have one explanation.
    fn is(&self, other: &Self) -> bool {
        (self.seq, &self.time, self.set) == (other.seq, &other.time, other.set)
            && (&self.via, &self.managers) == (&other.via, &other.managers)
            && self.provenance == other.provenance
    }
}

impl Question for Why {
    const NAME: &'static str = "why";
    type Item = Explanation;

    /// # Errors
    /// As `blame`.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Explanation>) -> Result<(), Failure> {
        let is_all = crate::query::render::path::object_and_paths(&self.object, &self.paths)
            .map_err(Failure::usage)?
            .1
            .is_empty();
        let blame = Blame { object: self.object, paths: self.paths, namespaces: self.namespaces, at: self.at };
        let mut blamed: Option<Blamed> = None;
        blame.answer_for(Self::NAME, log, &mut |found| {
            blamed = Some(found);
            Ok(())
        })?;
        let Some(mut found) = blamed else { return Ok(()) };
        if is_all {
            found.fields.retain(|field| is_on_purpose(&field.path));
        }
        let mut reader = log.open()?;
        let resource = match found.api_version.split_once('/') {
            Some((group, _)) => Cow::Owned(format!("{}.{group}", found.resource)),
            None => Cow::Borrowed(&*found.resource),
        };
        let namespaces = Some(found.namespace.clone()).filter(|name| !name.is_empty()).into_iter().collect::<Vec<_>>();
        let rows = object::find(&reader, "why", &format!("{resource}/{}", found.name), &namespaces)?;
        let row = object::only(&found.name, rows)?;
        let mut behind = Behind::new(&mut reader, &log.clock);
        let mut writes: Vec<Explained> = Vec::new();
        for field in found.fields {
            let explained = behind.explain(&row, field)?;
            match writes.iter_mut().find(|known| known.is(&explained)) {
                Some(known) => {
                    known.fields.extend(explained.fields);
                    let is_new = |note: &String| !known.notes.contains(note);
                    let notes: Vec<String> = explained.notes.into_iter().filter(is_new).collect();
                    known.notes.splice(0..0, notes);
                }
                None => writes.push(explained),
            }
        }
        writes.sort_by_key(|write| std::cmp::Reverse(write.seq));
        for write in &mut writes {
            let seq = write.via.last().map_or(write.seq, |via| via.seq).filter(|_| write.set == Set::At);
            write.actor = seq.map_or(Ok(None), |seq| object::actor_of(&mut reader, Seq(seq)))?;
            let beyond = object::beyond(&mut reader, seq.map(Seq), write.actor.as_ref())?;
            write.provenance.ends.add_sender(&beyond);
        }
        put(Explanation {
            api_version: found.api_version,
            kind: found.kind,
            resource: found.resource,
            namespace: found.namespace,
            name: found.name,
            uid: found.uid,
            gaps: found.gaps,
            writes,
            uncovered: found.uncovered,
        })
    }
}

/// Reports whether a field is one that somebody sets on purpose, and no book-keeping of the API server or of a controller.
fn is_on_purpose(path: &str) -> bool {
    const BOOKS: [&str; 3] = ["/apiVersion", "/kind", "/status"];
    const NOTES: [&str; 2] = [
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        "/metadata/annotations/deployment.kubernetes.io~1revision",
    ];
    let is_below = |of: &str| path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_below("/metadata") {
        return (is_below("/metadata/labels") || is_below("/metadata/annotations")) && !NOTES.contains(&path);
    }
    !BOOKS.iter().any(|book| is_below(book))
}
