//! `decklog get`: an object as it is, or as it was.

use bytes::Bytes;
use clap::Args;
use serde::Deserialize;

use super::clock::moment;
use super::names::{At, at};
use super::object::{self, Moment};
use super::output::Out;
use super::tree::Node;
use super::{Exit, Failure, Format, Global, Outcome, complain, yaml};
use crate::journal::{ObjectRow, Reader};
use crate::k8s::bookkeeping::PATHS;
use crate::model::{EntryType, Seq};

/// Arguments of `decklog get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// Its namespace; not needed where only one namespace has such an object
    #[arg(short, long, value_name = "NS")]
    pub namespace: Option<String>,
    /// As it was: right after an entry (its seq), so long ago (10m), or at a time: 10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339
    #[arg(long, value_name = "TIME or SEQ", value_parser = at)]
    pub at: Option<At>,
    /// Without status and what the server sets, for `kubectl apply -f -`
    #[arg(long)]
    pub clean: bool,
}

/// What the API server sets by itself beside the books of every write, and what would keep it from taking the object
/// again.
const SERVERS: [&[&str]; 10] = [
    &["status"],
    &["metadata", "uid"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    // The books of controllers.
    &["metadata", "annotations", "deployment.kubernetes.io/revision"],
    &["metadata", "annotations", "deprecated.daemonset.template.generation"],
    &["metadata", "annotations", "pv.kubernetes.io/bind-completed"],
    &["metadata", "annotations", "pv.kubernetes.io/bound-by-controller"],
];

/// What the API server sets in a Job to tie Pods to it: the uid of this one, so it takes it from no other.
const TIES: [&[&str]; 5] = [
    &["spec", "selector"],
    &["spec", "template", "metadata", "labels", "controller-uid"],
    &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
    &["metadata", "labels", "controller-uid"],
    &["metadata", "labels", "batch.kubernetes.io/controller-uid"],
];

/// What is known of an object at the moment asked for.
enum Known {
    /// It was this, and so much of it is redacted.
    Is(Bytes, Vec<String>),
    /// It was not there, for this reason.
    Not(String),
}

/// Prints the object.
///
/// # Errors
/// Exit 1 where it did not exist, with when it came and went.
pub fn main(args: GetArgs, global: &Global, out: &mut Out) -> Outcome {
    let format = match global.output {
        Some(Format::Line) => return Err(Failure::usage("get prints an object, so -o is yaml or json")),
        Some(format) => format,
        None => Format::Yaml,
    };
    let (mut reader, _) = global.reader()?;
    let mut rows = object::find(&reader, "get", &args.object, args.namespace.as_deref())?;
    let place = args.at.map(|at| object::place_of(&mut reader, &mut rows, at)).transpose()?;
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for row in &rows {
        match look(&mut reader, row, place)? {
            Known::Is(object, redacted) => found.push((row, object, redacted)),
            Known::Not(reason) => reasons.push(reason),
        }
    }
    if found.len() > 1 {
        return Err(object::several(&args.object, found.iter().map(|(row, ..)| *row)));
    }
    let Some((row, mut object, redacted)) = found.pop() else { return Err(Failure::no(reasons.join("; "))) };
    if let Some(place) = place
        && let Some(doubt) = object::doubt(&mut reader, row.resource_id, Some(&row.namespace), place, moment)?
    {
        complain(&format!("note: {doubt}"));
    }
    if let Some(stale) = object::unwatched(&reader, &row.resource.full_name(), Some(&row.namespace), moment)? {
        complain(&format!("note: {stale}"));
    }
    let damaged = |error: serde_json::Error| {
        Failure::new(Exit::Io, format!("the stored object is damaged ({error}); run `decklog verify`"))
    };
    if args.clean {
        let mut node = Node::parse(&object).map_err(damaged)?;
        node.without(&PATHS);
        node.without(&SERVERS);
        if row.resource.full_name() == "jobs.batch" && !manual(&object) {
            node.without(&TIES);
        }
        node.without_empty(&["metadata", "annotations"]);
        let left: Vec<&str> = redacted.iter().map(String::as_str).filter(|at| node.has(at)).collect();
        if !left.is_empty() {
            complain(&format!(
                "note: these values are redacted, put the real ones in before applying: {}",
                left.join(", ")
            ));
        }
        object = Bytes::from(node.json());
    }
    if format == Format::Json {
        out.json(&object)?;
    } else {
        out.bytes(yaml::from_json(&object).map_err(damaged)?.as_bytes())?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Whether somebody chose the Pods of a Job. The API server chooses them by itself, unless the Job says otherwise.
fn manual(job: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Job {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        manual_selector: Option<bool>,
    }
    serde_json::from_slice::<Job>(job).is_ok_and(|job| job.spec.manual_selector == Some(true))
}

fn look(reader: &mut Reader, row: &ObjectRow, place: Option<Moment>) -> Result<Known, Failure> {
    let stored = match place {
        None => {
            if let Some((object, redacted)) = reader.unrecorded(row)? {
                return Ok(Known::Is(object, redacted));
            }
            reader.entry_at(row, Seq(u64::MAX))?
        }
        Some(place) => {
            let (place, note) = object::happened_by(reader, row, place)?;
            if let Some(note) = note {
                complain(&format!("note: {note}"));
            }
            reader.entry_at(row, place.seq)?
        }
    };
    let Some(stored) = stored else { return Ok(Known::Not(object::not_yet(reader, row, place)?)) };
    let entry = object::parse(&stored)?;
    if entry.op == EntryType::Deleted {
        let before = reader.step(row, Seq(stored.seq.0 - 1))?;
        let before = before.map_or_else(String::new, |step| format!("; --at {} shows it as it was before", step.seq));
        return Ok(Known::Not(format!(
            "{} was deleted at {} (entry {}){before}",
            row.spell(),
            object::time_of(&entry),
            stored.seq,
        )));
    }
    let redacted = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    match entry.object {
        Some(object) => Ok(Known::Is(stored.line.slice_ref(object.get().as_bytes()), redacted)),
        None => Err(object::damaged(stored.seq, &"it has no object")),
    }
}
