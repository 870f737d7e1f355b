//! `decklog timeline`: a part of the log as a page of its own, with its data in it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use super::names::ago;
use super::output::{Out, plural, size};
use super::select::manager;
use super::{Exit, Failure, Global, Outcome, complain};
use crate::core::model::EntryType;
use crate::core::os::OpenOptionsExt;
use crate::core::units::ByteSize;
use crate::query::timeline::embed::{Contents, Item, Timeline};
use crate::query::timeline::selection::Window;
use crate::web::ui::OneFile;

/// Arguments of `decklog timeline`.
#[derive(Args, Debug)]
pub struct TimelineArgs {
    /// Resources and objects as kubectl spells them: deploy, deployments.apps, deploy/web, 'pods/web-*' [default: everything]
    #[arg(value_name = "KIND[/NAME]")]
    pub objects: Vec<String>,
    /// The file to write; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub html: PathBuf,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// Only these types: ADDED, MODIFIED, DELETED, GAP, ACTOR
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = super::select::entry_type)]
    pub types: Vec<EntryType>,
    /// Start: a duration back (10m, 1h30m, 2d) or a time (10:30, yesterday, '2026-11-21 10:30', RFC 3339)
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub since: Option<Timestamp>,
    /// End, in the same formats
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub until: Option<Timestamp>,
    /// Only entries for which this CEL expression over the entry is true
    #[arg(long = "where", value_name = "CEL")]
    pub filter: Option<String>,
    /// Only changes of these parts: spec, status, metadata, data or another top-level one
    #[arg(long = "only", value_name = "AREA", value_delimiter = ',')]
    pub areas: Vec<String>,
    /// Only entries that these programs wrote, as managedFields name them, or that these users sent, as an audit log names them:
    /// kubectl-set, 'kubectl*,flux', or alice@example.com
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = manager)]
    pub by: Vec<String>,
    /// Show changes of nothing that matters, each by itself
    #[arg(long)]
    pub all: bool,
    /// Approximate size of the file: beyond it the older entries are marks alone
    #[arg(long, value_name = "SIZE", default_value = "20MiB", value_parser = sized)]
    pub max_size: ByteSize,
}

fn sized(text: &str) -> Result<ByteSize, String> {
    use crate::core::spelling::Text as _;
    ByteSize::read(text).map_err(|_| format!("expected {}", ByteSize::EXPECTED))
}

impl TimelineArgs {
    fn window(&self) -> Window {
        let words = |texts: &[String]| {
            let words = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        Window {
            objects: words(&self.objects),
            namespaces: words(&self.namespace),
            types: self.types.clone(),
            areas: words(&self.areas),
            by: words(&self.by),
            since: self.since,
            until: self.until,
            filter: self.filter.clone().filter(|text| !text.trim().is_empty()),
            quiet: self.all,
        }
    }
}

/// Writes the file.
///
/// # Errors
/// Where the arguments name what the journal does not know, or the file cannot be written.
pub fn main(args: TimelineArgs, global: &Global) -> Outcome {
    let (mut file, mut contents) = (OneFile::default(), Contents::default());
    let question = Timeline { window: args.window(), max_bytes: args.max_size.in_memory() };
    let to_file = args.html.as_os_str() != "-";
    Global { to_file, ..global.clone() }.ask(question, &mut |item| {
        match item {
            Item::Answer(answer) => file.add(answer),
            Item::Contents(found) => contents = found,
        }
        Ok(())
    })?;
    let html = file.html(contents.left_out.as_deref())?;
    if !to_file {
        let mut out = Out::new(global);
        out.bytes(html.as_bytes())?;
        out.flush()?;
    } else {
        // It shows what objects hold: who may read it is for whoever passes it on.
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&args.html)
            .and_then(|mut file| file.write_all(html.as_bytes()));
        written.map_err(|error| Failure::io(format!("cannot write {}", args.html.display()), &error))?;
        complain(&format!(
            "wrote {}: {}, {}, {}",
            args.html.display(),
            plural(contents.objects as u64, "object", "objects"),
            plural(contents.changes as u64, "change", "changes"),
            size(html.len() as u64)
        ));
    }
    if let Some(left_out) = contents.left_out {
        complain(&format!("note: {left_out}"));
    }
    Ok(Exit::Done)
}
