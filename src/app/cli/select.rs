//! Selection of entries for a command: kubectl's spellings, namespaces, labels, types, moments, and conditions on their
//! contents.

use clap::Args;
use jiff::Timestamp;
use regex::bytes::Regex;

use super::names::ago;
use super::path::path;
use crate::core::change::Pattern;
use crate::core::model::EntryType;
use crate::core::spelling::Text;
use crate::core::spelling::kubernetes::LabelSelector;
use crate::query::select::{Filters, Select};

/// What `tail` and its siblings take to choose objects and entries.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// Resources and objects as kubectl spells them: deploy, deployments.apps, deploy/web, 'pods/web-*' [default: everything]
    #[arg(value_name = "KIND[/NAME]")]
    pub objects: Vec<String>,
    /// Only objects with these labels, as the entry has them: app=web, 'env in (prod,qa)', '!legacy'
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = labels)]
    pub selector: Option<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Which of their entries.
    #[command(flatten)]
    pub only: FilterArgs,
}

/// What every command that prints entries takes to choose among them.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// Only these types: ADDED, MODIFIED, DELETED, GAP, ACTOR
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = entry_type)]
    pub types: Vec<EntryType>,
    /// Start: a duration back (10m, 1h30m, 2d) or a time (10:30, yesterday, '2026-11-21 10:30', RFC 3339)
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub since: Option<Timestamp>,
    /// End, in the same formats
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub until: Option<Timestamp>,
    /// Only entries for which this CEL expression over the entry is true: 'type == "DELETED" && namespace == "shop"'
    #[arg(long = "where", value_name = "CEL")]
    pub filter: Option<String>,
    /// Only entries that changed this field.
    #[arg(
        long,
        value_name = "PATH",
        value_parser = path,
        help = "Only entries that changed this field: .spec.replicas, '.spec.template.spec.containers[*].image', image"
    )]
    pub touched: Option<Pattern>,
    /// Only entries whose JSON matches this regular expression.
    #[arg(
        long,
        value_name = "REGEX",
        value_parser = regex,
        help = r"Only entries whose JSON, as -o json prints it, matches this regular expression: 'nginx:1\.2[89]', '(?i)oomkilled'"
    )]
    pub grep: Option<Regex>,
    /// Only entries that these programs wrote, as managedFields name them, or that these users sent, as an audit log names them:
    /// kubectl-set, 'kubectl*,flux', or alice@example.com
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = manager)]
    pub by: Vec<String>,
    /// Take --since and --until for the time of journaling, which after an outage is later than the change itself
    #[arg(long)]
    pub by_journal_time: bool,
}

impl SelectArgs {
    /// The selection as a question has it.
    pub(crate) fn select(&self) -> Select {
        Select { objects: self.objects.clone(), labels: self.selector.clone(), only: self.only.filters(), waits: false }
    }
}

impl FilterArgs {
    /// The conditions as a question has them.
    pub(crate) fn filters(&self) -> Filters {
        Filters {
            namespaces: self.namespace.clone(),
            types: self.types.clone(),
            since: self.since,
            until: self.until,
            filter: self.filter.clone(),
            touched: self.touched.as_ref().map(Pattern::to_string),
            grep: self.grep.as_ref().map(|grep| grep.as_str().to_owned()),
            by: self.by.clone(),
            by_journal_time: self.by_journal_time,
        }
    }
}

/// Parses a count.
///
/// # Errors
/// What is expected instead.
pub fn how_many(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a number such as 20".to_owned())
}

/// Checks a label selector.
///
/// # Errors
/// What is wrong with it.
pub fn labels(text: &str) -> Result<String, String> {
    LabelSelector::read(text).map(|_| text.to_owned()).map_err(|wrong| match wrong.nearest {
        Some(near) => format!("{}; did you mean {near}?", wrong.found),
        None => format!("{}; expected {}", wrong.found, LabelSelector::EXPECTED),
    })
}

/// Reads the name of a manager, which may have a `*`.
pub(super) fn manager(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("expected the name of a manager, such as kubectl-set".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        let last = error.to_string();
        // The regex crate draws the place above its last line.
        let last = last.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("no regular expression: {last}")
    })
}

pub(super) fn entry_type(word: &str) -> Result<EntryType, String> {
    EntryType::parse(&word.to_ascii_uppercase())
        .ok_or_else(|| "expected ADDED, MODIFIED, DELETED, GAP or ACTOR".to_owned())
}
