//! Names that people use: objects as kubectl spells them, and moments.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Failure;
use super::clock::{EXPECTED, Form, clock};
use crate::core::k8s::names::Spelling;
use crate::core::model::{Resource, Seq};
use crate::journal::Reader;

/// A moment, as people write it.
///
/// # Errors
/// What is expected instead.
pub fn ago(text: &str) -> Result<Timestamp, String> {
    clock().read(text).map(|written| written.time).map_err(|expected| missing(text, expected))
}

/// Returns the expectation, and a hint if the next option stands in the place of a moment.
fn missing(text: &str, expected: String) -> String {
    let is_option =
        text.starts_with("--") || text.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
    if is_option { format!("the moment is missing before the option {text}; {expected}") } else { expected }
}

/// A place in history: an entry or a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// Right after this entry.
    Seq(Seq),
    /// At this moment.
    Time(Timestamp),
    /// At this moment, which was given by how long ago it is, or by its day: `yesterday`.
    Ago(Timestamp),
}

/// A seq, or what [`ago`] takes.
///
/// # Errors
/// What is expected instead.
pub fn at(text: &str) -> Result<At, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(|seq| At::Seq(Seq(seq))).map_err(|_| "no seq is that large".to_owned());
    }
    match clock().read(text) {
        Ok(written) if matches!(written.form, Form::Ago | Form::Day) => Ok(At::Ago(written.time)),
        Ok(written) => Ok(At::Time(written.time)),
        Err(expected) if expected == EXPECTED => Err(missing(text, format!("{expected}, or a seq like 1234"))),
        Err(other) => Err(other),
    }
}

/// Returns the name of a resource on a terminal, as short as readers of kubectl's output recognize it.
#[must_use]
pub fn kind(resource: &Resource) -> String {
    const KNOWN: [&str; 18] = [
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    ];
    // Elsewhere short names are anybody's.
    if !KNOWN.contains(&resource.group.as_str()) {
        return resource.full_name();
    }
    let singular = Some(&resource.singular).filter(|name| !name.is_empty());
    // Nobody reads `no/worker-1`.
    let word = singular.filter(|name| name.len() <= "node".len()).or(resource.short_names.first()).or(singular);
    word.unwrap_or(&resource.plural).clone()
}

/// Meaning of a spelling such as `deploy/web` in a journal.
#[derive(Clone, Debug)]
pub struct Named {
    /// The resources that it can mean, with their ids in the journal. Never empty.
    pub resources: Vec<(i64, Resource)>,
    /// The one name, where one was given.
    pub name: Option<String>,
}

/// Reads kubectl's spellings with what discovery last said.
#[derive(Debug)]
pub struct Spellings {
    resources: Vec<(i64, Resource)>,
    /// Resources that have ever been watched.
    watched: Vec<i64>,
}

impl Spellings {
    /// Loads the names that the journal knows.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn load(reader: &Reader) -> Result<Self, Failure> {
        let resources = reader.resources()?;
        let names: Vec<String> = reader.sources()?.iter().map(|source| source.resource.full_name()).collect();
        let watched = resources.iter().filter(|(_, r)| names.contains(&r.full_name())).map(|(id, _)| *id).collect();
        Ok(Self { resources, watched })
    }

    /// Resolves `KIND[/NAME]`.
    ///
    /// # Errors
    /// Where nothing is spelled so, with the nearest spelling, or where it is not watched, with what watches it.
    pub fn read(&self, text: &str) -> Result<Named, Failure> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        if kind.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
            return Err(Failure::usage(format!("{text:?} is not KIND or KIND/NAME, such as deploy/web or pods")));
        }
        let found = self.matching(kind);
        if found.is_empty() {
            return Err(self.unknown(kind));
        }
        let resources: Vec<_> = found.iter().filter(|(id, _)| self.watched.contains(id)).cloned().collect();
        if resources.is_empty() {
            return Err(Failure::no(unwatched(&found[0].1.full_name())));
        }
        Ok(Named { resources, name: name.map(str::to_owned) })
    }

    /// Every resource that `kind` can mean, by the first of kubectl's forms that fits any.
    fn matching(&self, kind: &str) -> Vec<(i64, Resource)> {
        let spelling = Spelling::of(kind);
        let form = |(_, resource): &&(i64, Resource)| spelling.form(resource).filter(|_| spelling.is_where(resource));
        let best = self.resources.iter().filter_map(|resource| form(&resource)).min();
        self.resources.iter().filter(|resource| best.is_some() && form(resource) == best).cloned().collect()
    }

    /// The resources that have ever been watched.
    pub fn watched(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|(id, _)| self.watched.contains(id)).map(|(_, resource)| resource)
    }

    fn unknown(&self, kind: &str) -> Failure {
        if self.resources.is_empty() {
            return Failure::no("the journal knows no resources yet; start `decklog run` and let it reach the cluster");
        }
        let spellings = self.resources.iter().flat_map(|(_, resource)| {
            [resource.plural.clone(), resource.singular.clone(), resource.full_name()]
                .into_iter()
                .chain(resource.short_names.iter().cloned())
        });
        let lower = kind.to_ascii_lowercase();
        let nearest = spellings
            .filter(|spelling| !spelling.is_empty())
            .map(|spelling| (strsim::damerau_levenshtein(&lower, &spelling), spelling))
            .min_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.cmp(y)))
            .filter(|(distance, spelling)| *distance <= spelling.len().max(3) / 3);
        let hint = match nearest {
            _ if lower == "all" => {
                "name the kinds, such as deploy,rs,pods; `decklog tail` without any is about everything".to_owned()
            }
            Some((_, spelling)) => format!("did you mean {spelling}?"),
            None => "write KIND or KIND/NAME, such as deploy/web; `decklog status` lists what is watched".to_owned(),
        };
        Failure::usage(format!("the journal knows no resource {kind:?}; {hint}"))
    }
}

/// Returns the sentence about a resource that is not watched, with what to do.
pub(crate) fn unwatched(resource: &str) -> String {
    let why = match resource {
        "secrets" => "the default leaves them out, because the right to watch Secrets is the right to read them; ",
        "events" | "events.events.k8s.io" | "leases.coordination.k8s.io" => "the default leaves them out; ",
        _ => "",
    };
    let digests = if resource == "secrets" { ", with digests for their values" } else { "" };
    format!(
        "{resource} are not watched: {why}to record them{digests}, add a [[watch]] with resources = [{resource:?}] to the \
         configuration; `decklog status --all` lists what is watched"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_seq_or_a_moment() {
        assert_eq!(at("7"), Ok(At::Seq(Seq(7))));
        assert!(matches!(at("10m"), Ok(At::Ago(_))) && matches!(at("now"), Ok(At::Time(_))));
        assert!(matches!(at("yesterday"), Ok(At::Ago(_))) && matches!(at("yesterday 10:30"), Ok(At::Ago(_))));
        assert!(matches!(at("2026-11-20T10:30:00Z"), Ok(At::Time(_))) && matches!(at("2026-11-20"), Ok(At::Time(_))));
        assert!(at("99999999999999999999").unwrap_err().contains("no seq is that large"));
        assert!(at("noon").unwrap_err().contains("or a seq like 1234"));
    }

    #[test]
    fn a_kind_is_called_as_people_call_it() {
        let called = |group: &str, plural: &str, singular: &str, short: &[&str]| {
            kind(&Resource {
                group: group.into(),
                version: "v1".into(),
                kind: String::new(),
                plural: plural.into(),
                singular: singular.into(),
                short_names: short.iter().map(|name| (*name).to_owned()).collect(),
                namespaced: true,
            })
        };
        assert_eq!(called("apps", "deployments", "deployment", &["deploy"]), "deploy");
        assert_eq!(called("", "pods", "pod", &["po"]), "pod");
        assert_eq!(called("", "nodes", "node", &["no"]), "node");
        assert_eq!(called("", "secrets", "secret", &[]), "secret");
        assert_eq!(called("", "endpoints", "", &[]), "endpoints");
        assert_eq!(called("discovery.k8s.io", "endpointslices", "endpointslice", &[]), "endpointslice");
        assert_eq!(called("events.k8s.io", "events", "event", &["ev"]), "events.events.k8s.io");
        assert_eq!(called("example.com", "widgets", "widget", &["deploy"]), "widgets.example.com");
    }
}
