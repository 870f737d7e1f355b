//! `decklog get`: objects as they are, or as they were.

mod table;

use bytes::Bytes;
use clap::Args;
use serde::Deserialize;

use super::names::{At, at};
use super::output::{Out, printable};
use super::select::labels;
use super::tree::Node;
use super::{Exit, Failure, Format, Global, Outcome, complain, yaml};
use crate::core::k8s::bookkeeping::PATHS;
use crate::query::questions::get::{Found, Get, Item};
use table::Table;

/// Arguments of `decklog get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// What to print, as kubectl spells it: deploy/web or deploy web; several of them; all of a kind: deploy, deploy,pods, 'pods/web-*'
    #[arg(value_name = "KIND[/NAME]", required = true)]
    pub objects: Vec<String>,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels: app=web, 'env in (prod,qa)', '!legacy'
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = labels)]
    pub selector: Option<String>,
    /// State at a moment: right after an entry (its seq), a duration back (10m), or a time (10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339)
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub at: Option<At>,
    /// Leave out status and the fields that the server sets, for `kubectl apply -f -`
    #[arg(long)]
    pub clean: bool,
    /// Show managedFields, which YAML leaves out and JSON does not
    #[arg(long)]
    pub show_managed_fields: bool,
}

/// Fields that the API server maintains beside the bookkeeping of every write, and fields that would keep it from accepting the
/// object.
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

/// Fields that the API server sets in a Job to tie Pods to it: the uid of this Job, so it accepts them from no other.
const TIES: [&[&str]; 5] = [
    &["spec", "selector"],
    &["spec", "template", "metadata", "labels", "controller-uid"],
    &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
    &["metadata", "labels", "controller-uid"],
    &["metadata", "labels", "batch.kubernetes.io/controller-uid"],
];

/// Prints one object as YAML, or several as a table.
///
/// # Errors
/// Exit 1 where there was none, with when it came and went.
pub fn main(args: GetArgs, global: &Global, out: &mut Out) -> Outcome {
    let question = Get {
        objects: args.objects.clone(),
        namespaces: args.namespace.clone(),
        all_namespaces: args.all_namespaces,
        labels: args.selector.clone(),
        at: args.at,
    };
    let mut printer = None;
    global.ask(question, &mut |item| match (item, &mut printer) {
        (Item::Begin { one, now }, _) => {
            let format = global.output.unwrap_or(if one { Format::Yaml } else { Format::Line });
            printer = Some(Printer { format, args: &args, table: Table::new(now), first: true });
            Ok(())
        }
        (Item::Object(found), Some(printer)) => printer.print(out, &found),
        (Item::Object(_), None) => Err(Failure::internal("an object comes before the form of the answer")),
    })?;
    if let Some(printer) = printer {
        printer.end(out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Prints objects in the format asked for.
struct Printer<'a> {
    format: Format,
    args: &'a GetArgs,
    table: Table,
    first: bool,
}

impl Printer<'_> {
    fn print(&mut self, out: &mut Out, found: &Found) -> Result<(), Failure> {
        let first = std::mem::replace(&mut self.first, false);
        match self.format {
            Format::Line | Format::Wide => self.table.add(found),
            Format::Name => out.line(&printable(&spelled(found)))?,
            Format::Json => out.json(&self.told(found)?)?,
            Format::Yaml => {
                if !first {
                    out.line("---")?;
                }
                out.bytes(yaml::from_json(&self.told(found)?).map_err(|error| damaged(&error))?.as_bytes())?;
            }
        }
        Ok(())
    }

    fn end(&self, out: &mut Out) -> Result<(), Failure> {
        let namespaces = self.args.namespace.len() != 1;
        for line in self.table.lines(out.look, namespaces, self.format == Format::Wide) {
            out.line(&line)?;
        }
        Ok(())
    }

    /// The object without what was not asked for.
    fn told(&self, found: &Found) -> Result<Bytes, Failure> {
        if self.args.clean {
            return cleaned(found);
        }
        if self.format == Format::Json || self.args.show_managed_fields {
            return Ok(Bytes::copy_from_slice(found.object.get().as_bytes()));
        }
        let mut node = Node::parse(found.object.get().as_bytes()).map_err(|error| damaged(&error))?;
        node.without(&[&["metadata", "managedFields"]]);
        Ok(node.json().into())
    }
}

fn damaged(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Io, format!("the stored object is damaged ({why}); run `decklog verify`"))
}

/// `deployment.apps/web`, as `kubectl get -o name` has it.
fn spelled(found: &Found) -> String {
    let kind = found.resource.kind.to_lowercase();
    match found.resource.group.as_str() {
        "" => format!("{kind}/{}", found.name),
        group => format!("{kind}.{group}/{}", found.name),
    }
}

/// The object as somebody would apply it.
fn cleaned(found: &Found) -> Result<Bytes, Failure> {
    let mut node = Node::parse(found.object.get().as_bytes()).map_err(|error| damaged(&error))?;
    node.without(&PATHS);
    node.without(&SERVERS);
    if found.resource.full_name() == "jobs.batch" && !manual(found.object.get().as_bytes()) {
        node.without(&TIES);
    }
    node.without_empty(&["metadata", "annotations"]);
    let left: Vec<&str> = found.redacted.iter().map(String::as_str).filter(|at| node.has(at)).collect();
    if !left.is_empty() {
        complain(&format!(
            "note: these values are redacted, put the real ones in before applying: {}",
            left.join(", ")
        ));
    }
    Ok(node.json().into())
}

/// Reports whether the selector of a Job was chosen by a person. The API server generates it, unless the Job says otherwise.
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
