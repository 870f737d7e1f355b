//! Requests that wrote nothing, as far as the journal proves it.
//!
//! At the audit level `Metadata` a request that changed nothing is known by the version that it did not make. So it counts only where
//! the log has every version of its object: where `ignore` may have suppressed one, or a selector may have left one out, the object has
//! to be untouched since. **A wrong accusation is worse than a low count.**

use super::join::{Cover, Write};
use super::versions::WATCH_LAG_MAX;
use crate::core::k8s::audited::AuditedRequest;
use crate::core::model::ResourceVersion;
use crate::journal::{AuditedObject, JournalError, Reader, SourceRow, Unwritten, UnwrittenKind};

/// What becomes of a write without a version in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It changed nothing.
    NoOp,
    /// The log may lack the version that it made.
    Witness,
    /// Nobody knows.
    Unknown,
}

/// Object of a write whose version the log does not have: group and plural of the resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty where it has none.
    pub namespace: String,
    /// Name of it.
    pub name: String,
}

/// Returns a request that was refused, as it is counted.
pub(super) fn refused(request: AuditedRequest) -> Unwritten {
    let is_creation = request.verb == "create" && request.subresource.is_empty();
    Unwritten {
        key: request.key(),
        kind: if is_creation { UnwrittenKind::AlreadyExists } else { UnwrittenKind::Conflict },
        user: request.sender.user,
        agent: request.sender.agent,
        verb: request.verb,
        group: request.group,
        resource: request.resource,
        subresource: request.subresource,
        namespace: request.namespace,
        name: request.name,
        completed: request.completed,
    }
}

/// Returns what the active sources cover, up to the last time that each is known to have been complete.
pub(super) fn covers(sources: &[SourceRow]) -> Vec<Cover> {
    let lag = i64::try_from(WATCH_LAG_MAX.as_micros()).unwrap_or(i64::MAX);
    let cover = |source: &SourceRow| {
        Some(Cover {
            group: source.resource.group.clone(),
            resource: source.resource.plural.clone(),
            namespace: source.namespace.clone(),
            since: source.good_since?,
            upto: if source.gap_owed { i64::MIN } else { source.good_at?.saturating_sub(lag) },
        })
    };
    sources.iter().filter(|source| source.active).filter_map(cover).collect()
}

/// Sorts writes without a version into those that changed nothing, and the objects of which the log may lack one.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn sort(
    reader: &Reader,
    wasted: Vec<Write>,
    unknown: &[Write],
) -> Result<(Vec<Unwritten>, Vec<Suspect>), JournalError> {
    let (mut counted, mut suspects) = (Vec::new(), Vec::new());
    if wasted.is_empty() && unknown.is_empty() {
        return Ok((counted, suspects));
    }
    let sources = reader.sources()?;
    let meaning = |write: &Write| {
        let object = reader.audited_object(&write.group, &write.resource, &write.namespace, &write.name)?;
        let source = source_of(&sources, write);
        Ok::<_, JournalError>(source.map_or(Meaning::Unknown, |source| meaning(write, object.as_ref(), source)))
    };
    for write in unknown {
        if meaning(write)? == Meaning::Witness {
            suspects.push(suspect(write));
        }
    }
    for write in wasted {
        match meaning(&write)? {
            Meaning::NoOp => counted.push(no_op(write)),
            Meaning::Witness => suspects.push(suspect(&write)),
            Meaning::Unknown => {}
        }
    }
    Ok((counted, suspects))
}

fn source_of<'a>(sources: &'a [SourceRow], write: &Write) -> Option<&'a SourceRow> {
    sources.iter().find(|source| {
        source.active
            && source.resource.plural == write.resource
            && source.resource.group == write.group
            && (source.namespace.is_empty() || source.namespace == write.namespace)
    })
}

/// Returns what a write without a version means, where the log is complete up to a later time.
fn meaning(write: &Write, object: Option<&AuditedObject>, source: &SourceRow) -> Meaning {
    let after = Some(ResourceVersion::new(&write.version)).filter(|_| !write.version.is_empty());
    let Some(object) = object else {
        // It was there to be written, and the log has never seen it. What a selector leaves out is not for the log.
        return if source.selects { Meaning::Unknown } else { Meaning::Witness };
    };
    if after.is_some_and(|after| object.version.is_before(&after)) {
        return if source.selects && !object.present { Meaning::Unknown } else { Meaning::Witness };
    }
    let has_all = source.suppressed == 0 && !source.selects;
    let was_there = object.present || object.recorded >= write.received;
    let is_untouched = object.present && !object.suppressed && object.recorded < write.received;
    if is_untouched || has_all && was_there { Meaning::NoOp } else { Meaning::Unknown }
}

fn suspect(write: &Write) -> Suspect {
    let Write { group, resource, namespace, name, .. } = write.clone();
    Suspect { group, resource, namespace, name }
}

fn no_op(write: Write) -> Unwritten {
    Unwritten {
        key: write.key,
        kind: UnwrittenKind::NoOp,
        user: write.sender.user,
        agent: write.sender.agent,
        verb: write.verb.to_owned(),
        group: write.group,
        resource: write.resource,
        subresource: write.subresource,
        namespace: write.namespace,
        name: write.name,
        completed: write.completed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::k8s::audited::Sender;
    use crate::core::model::Resource;
    use crate::journal::{SourceId, SourceState};

    fn source(suppressed: u64, selects: bool) -> SourceRow {
        SourceRow {
            id: SourceId(1),
            resource: Resource {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: "Deployment".to_owned(),
                plural: "deployments".to_owned(),
                singular: String::new(),
                short_names: Vec::new(),
                namespaced: true,
            },
            namespace: String::new(),
            state: SourceState::Watching,
            state_since: 0,
            resume: None,
            good_at: Some(90_000_000),
            good_since: Some(1),
            gaps: 0,
            recovered: 0,
            active: true,
            audits: 0,
            audit_differences: 0,
            audited_at: 0,
            gap_owed: false,
            suppressed,
            scoped: selects,
            selects,
            excluded: Vec::new(),
        }
    }

    fn write(after: &str) -> Write {
        Write {
            id: "1".to_owned(),
            key: "1".to_owned(),
            sender: Sender::default(),
            verb: "update",
            subresource: String::new(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            version: after.to_owned(),
            received: 100,
            completed: 110,
        }
    }

    /// Nobody is accused of what the log may have left out, and no object is called damaged: the audit is only asked.
    #[test]
    fn a_write_without_a_version_changed_nothing_only_where_the_log_would_have_it() {
        let object = |version: &str, present: bool, recorded: i64, suppressed: bool| {
            Some(AuditedObject { version: ResourceVersion::new(version), present, recorded, suppressed })
        };
        let (whole, ignoring, selecting) = (source(0, false), source(3, false), source(0, true));
        let rows = [
            ("as the log has it", "7", object("7", true, 50, false), &whole, Meaning::NoOp),
            ("without an answer", "", object("7", true, 50, false), &whole, Meaning::NoOp),
            ("changed by others since", "7", object("9", true, 105, false), &whole, Meaning::NoOp),
            ("deleted since", "7", object("9", false, 105, false), &whole, Meaning::NoOp),
            ("deleted before: left out now", "", object("9", false, 50, false), &whole, Meaning::Unknown),
            ("something is suppressed, of others", "7", object("7", true, 50, false), &ignoring, Meaning::NoOp),
            ("it may be suppressed", "", object("9", true, 50, true), &ignoring, Meaning::Unknown),
            ("one before the entry may be suppressed", "", object("9", true, 105, false), &ignoring, Meaning::Unknown),
            ("untouched in the selection", "", object("7", true, 50, false), &selecting, Meaning::NoOp),
            ("it may have entered since", "", object("7", true, 105, false), &selecting, Meaning::Unknown),
            ("out of the selection", "9", None, &selecting, Meaning::Unknown),
            ("left the selection", "12", object("9", false, 50, false), &selecting, Meaning::Unknown),
            ("never seen", "9", None, &whole, Meaning::Witness),
            ("a version beyond the log", "9", object("7", true, 50, false), &whole, Meaning::Witness),
            ("a version beyond a deletion", "12", object("9", false, 50, false), &whole, Meaning::Witness),
            ("a longer number is a later one", "10", object("9", true, 50, false), &whole, Meaning::Witness),
        ];
        for (what, after, object, source, meant) in rows {
            assert_eq!(meaning(&write(after), object.as_ref(), source), meant, "{what}");
        }
    }

    #[test]
    fn a_source_covers_what_it_has_had_time_to_bring() {
        let upto = |change: &dyn Fn(&mut SourceRow)| {
            let mut row = source(0, false);
            change(&mut row);
            covers(&[row]).first().map(|cover| cover.upto)
        };
        assert_eq!(upto(&|_| ()), Some(85_000_000));
        assert_eq!(upto(&|row| row.gap_owed = true), Some(i64::MIN), "its position is lost");
        assert_eq!(upto(&|row| row.good_since = None), None, "before its first list");
        assert_eq!(upto(&|row| row.active = false), None);
    }

    #[test]
    fn a_refusal_is_a_taken_name_or_a_conflict() {
        for (verb, subresource, kind) in [
            ("create", "", UnwrittenKind::AlreadyExists),
            ("create", "binding", UnwrittenKind::Conflict),
            ("update", "", UnwrittenKind::Conflict),
            ("apply", "", UnwrittenKind::Conflict),
            ("delete", "", UnwrittenKind::Conflict),
        ] {
            let request =
                AuditedRequest { verb: verb.to_owned(), subresource: subresource.to_owned(), ..Default::default() };
            assert_eq!(refused(request).kind, kind, "{verb} {subresource}");
        }
    }
}
