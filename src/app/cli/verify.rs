//! `decklog verify`: proves that the journal is whole and unaltered, and checks a copy that a sink wrote.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::bufread::MultiGzDecoder;
use serde::Serialize;

use super::output::{Ink, Out, Row, count, plural, printable, sentence};
use super::progress::Progress;
use super::{Exit, Failure, Format, Global, Outcome};
use crate::core::filter::Filter;
use crate::delivery::From;
use crate::journal::{Reader, Verified};
use crate::query::questions::verify::{Item, Verify};
use crate::sink::registry::SinkKind;
use batch::Batch;
use copy::{Checker, Copied, Writes};
use evidence::{Authenticated, Cosigned, Fork, Lacking};
use revisions::Counted;

mod batch;
mod chain;
mod copy;
mod evidence;
mod revisions;
#[cfg(test)]
mod tests;

/// Arguments of `decklog verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The files of one copy, JSON Lines, compressed with zstd, gzip or not; - is standard input [default: the journal]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The filter of the sink (its `where`), so that entries it excludes are not reported missing
    #[arg(long = "where", value_name = "CEL", requires = "files")]
    pub filter: Option<String>,
    /// FILE has only some of the entries: those that it lacks are no problem
    #[arg(long, requires = "files", conflicts_with = "filter")]
    pub partial: bool,
    /// The directory of the evidence, or a copy of it: each line has to be in a tree that the key has signed
    #[arg(long, value_name = "DIR", requires = "key", conflicts_with = "proof")]
    pub evidence: Option<PathBuf>,
    /// The public key that `decklog evidence key` prints, or a file with it; several after a rotation
    #[arg(long, value_name = "KEY")]
    pub key: Vec<String>,
    /// The public key of a witness, or a file with it: each tree, or one that follows it, has to be cosigned by it
    #[arg(long, value_name = "KEY", requires = "key")]
    pub witness: Vec<String>,
    /// A checkpoint that you kept: the evidence has to be a later state of it
    #[arg(long, value_name = "FILE", requires = "evidence")]
    pub checkpoint: Vec<PathBuf>,
    /// The entry that FILE ends with by intent, by its seq: it has to be there, and what is signed after it is not asked for
    #[arg(long, value_name = "SEQ", requires_all = ["evidence", "files"], conflicts_with_all = ["partial", "filter"])]
    pub ends_with: Option<u64>,
    /// A list of what etcd has, a resource and a revision on each line: each has to be in FILE, or inside a GAP of it
    #[arg(long, value_name = "LIST", requires = "files", conflicts_with_all = ["filter", "partial"])]
    pub revisions: Option<PathBuf>,
    /// The proof of the one entry in FILE, as `decklog prove` writes it
    #[arg(long, value_name = "PROOF", requires_all = ["key", "files"])]
    pub proof: Option<PathBuf>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct Answer<'a, T: Serialize> {
    /// Null if nothing is wrong, and that is not proved.
    whole: Option<bool>,
    #[serde(flatten)]
    found: T,
    problems: &'a [String],
}

#[derive(Serialize)]
struct JournalFound {
    entries: u64,
    first: Option<u64>,
    last: Option<u64>,
    objects: u64,
    gaps: u64,
    removed: u64,
    pages_checked: bool,
}

/// Verifies the journal or a copy.
///
/// # Errors
/// Where it cannot be read at all; damage is exit 1 and is listed on standard output.
pub fn main(args: VerifyArgs, global: &Global) -> Outcome {
    if !args.key.is_empty() && args.evidence.is_none() && args.proof.is_none() {
        return Err(Failure::usage("--key needs --evidence DIR, or --proof FILE"));
    }
    if args.files.is_empty() && args.evidence.is_none() { journal(global) } else { files(&args, global) }
}

fn journal(global: &Global) -> Outcome {
    let mut progress = Progress::new("verify", "entries");
    let mut found = None;
    global.ask(Verify {}, &mut |item| {
        match item {
            Item::Progress(done, total) => progress.at(done, total),
            Item::Found(name, verified) => found = Some((name, verified)),
        }
        Ok(())
    })?;
    drop(progress);
    let (name, found) = found.ok_or_else(|| Failure::internal("the answer has no end"))?;
    let Verified { entries, removed, objects, gaps, range, pages_unchecked, problems } = &*found;
    let summary = match range {
        Some((first, last)) => format!(
            "{} ({first} to {last}) with {}, and {} that are as the log says",
            plural(*entries, "entry", "entries"),
            plural(*gaps, "gap", "gaps"),
            plural(*objects, "object", "objects"),
        ),
        None => format!("no entries, {}", plural(*objects, "object", "objects")),
    };
    let (first, last) = range.map(|(first, last)| (first.0, last.0)).unzip();
    let facts = JournalFound {
        entries: *entries,
        first,
        last,
        objects: *objects,
        gaps: *gaps,
        removed: *removed,
        pages_checked: !pages_unchecked,
    };
    let mut summary = vec![summary];
    if *removed > 0 {
        summary.push(format!("entries 1 to {removed} were removed, as [state] asks for"));
    }
    if *pages_unchecked {
        summary.push(
            "SQLite's own check of its pages was left out: the daemon writes too fast for it; stop it to have that too"
                .to_owned(),
        );
    }
    let verdict = Verdict { whole: Some(true), text: format!("the journal in {name} is whole and unaltered") };
    answer(global, &format!("the journal in {name}"), &summary, facts, problems, verdict)
}

fn files(args: &VerifyArgs, global: &Global) -> Outcome {
    let filter = args.filter.as_deref().map(Filter::compile).transpose();
    let filter = filter.map_err(|error| Failure::usage(format!("--where: {error}")))?;
    let mut sources = Vec::new();
    for path in &args.files {
        sources.push(Source::open(path)?);
    }
    // One copy in several files: in the order of what is in them, whatever the order on the command line.
    sources.sort_by_key(|source| source.first.clone());
    let total = sources.iter().map(|source| source.size).sum();

    // Without a journal a copy can still be checked against itself.
    let (reader, why_not) = match global.reader() {
        Ok((reader, _)) => (Some(reader), String::new()),
        Err(failure) if global.state.is_some() => return Err(failure),
        Err(failure) => (None, failure.to_string()),
    };
    // What the sink has is asked before its file is read, because it goes on.
    let sink = reader.as_ref().and_then(|reader| sink(&args.files, reader, global));
    let mut checker = Checker::new(reader, sink, filter, args)?;
    let mut progress = Progress::new("verify", "bytes");
    let mut done = 0;
    for mut source in sources {
        let mut batch = Batch::new(source.name.clone());
        loop {
            let more = batch.fill(&mut source.lines);
            checker.check(&batch)?;
            done += batch.size();
            progress.at(done, total);
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if source.compressed => {
                    checker.problem(format!("{}, after line {}: {error}", source.name, batch.last_line()));
                    break;
                }
                Err(error) => return Err(Failure::io(format!("cannot read {}", source.name), &error)),
            }
        }
    }
    drop(progress);
    let (found, problems) = checker.finish();
    let names: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
    let names = match &args.evidence {
        Some(dir) if names.is_empty() => format!("the evidence in {}", dir.display()),
        _ => names.join(" "),
    };
    let verdict = verdict(&names, &found, args);
    answer(global, &names, &summary(&found, &why_not), found, &problems, verdict)
}

/// The sink that writes to one of these files, as the configuration and the journal say.
fn sink(files: &[PathBuf], reader: &Reader, global: &Global) -> Option<Writes> {
    let config = global.load_for_reading().ok()?.config;
    let rows = reader.sinks().ok()?;
    let files: Vec<PathBuf> = files.iter().filter_map(|path| path.canonicalize().ok()).collect();
    config.sink.iter().find_map(|sink| {
        let SinkKind::File(file) = &sink.kind else { return None };
        let path = file.path.canonicalize().ok()?;
        let row = rows.iter().find(|row| row.name == sink.name).filter(|_| files.contains(&path))?;
        let rotates = file.rotate_size.is_some() || file.rotate_every.is_some();
        let from_start = sink.from == From::Start && !rotates;
        Some(Writes { name: sink.name.clone(), written: row.written.0, from_start })
    })
}

/// Returns the verdict about a copy without errors: no more than what is verified.
fn verdict(names: &str, found: &Copied, args: &VerifyArgs) -> Verdict {
    if let Some(authenticated) = &found.authenticated {
        return match found.entries {
            0 if args.files.is_empty() => verdict_of_trees(names, authenticated),
            0 => Verdict { whole: Some(false), text: format!("{names} has no entries: nothing is proved by it") },
            _ => verdict_of_evidence(names, found, authenticated, args),
        };
    }
    let range = match (found.epochs.first(), found.epochs.last()) {
        (Some(first), Some(last)) => format!("from entry {} to {}", first.first, last.last),
        _ => {
            return match &found.sink {
                Some(sink) => Verdict {
                    whole: Some(true),
                    text: format!("{names} has no entries, and the sink {sink} took none yet"),
                },
                None => {
                    Verdict { whole: Some(false), text: format!("{names} has no entries: nothing is proved by it") }
                }
            };
        }
    };
    let open = match (found.begin_proved, found.end_proved) {
        (true, true) => String::new(),
        (true, false) => "; nothing shows whether more belongs after that".to_owned(),
        (false, true) if found.epochs.first().is_some_and(|part| part.first > 1) => {
            "; no given file has the entries before: the sink began later, or rotation has removed them".to_owned()
        }
        (false, true) => "; nothing shows whether more belongs before that".to_owned(),
        (false, false) => "; nothing shows whether more belongs to it".to_owned(),
    };
    let all = match &found.sink {
        Some(sink) if found.end_proved => format!(", the last that the sink {sink} took"),
        Some(_) | None => String::new(),
    };
    if found.compared == found.entries {
        return Verdict { whole: Some(true), text: format!("{names} is whole and unaltered {range}{all}{open}") };
    }
    let why = match found.entries - found.compared {
        all if all == found.entries => {
            "a copy alone cannot show that no entry was altered: compare it with the journal".to_owned()
        }
        rest => format!(
            "the journal does not have {} any more, so nothing shows that none was altered",
            plural(rest, "entry of it", "entries of it")
        ),
    };
    Verdict { whole: None, text: format!("{names} is consistent, not authenticated, {range}{all}{open}; {why}") }
}

/// Returns the verdict about evidence without a copy.
fn verdict_of_trees(names: &str, authenticated: &Authenticated) -> Verdict {
    let Authenticated { missing, unsigned, forks, checkpoints, .. } = authenticated;
    if checkpoints.is_empty() {
        return Verdict { whole: None, text: format!("nothing of {names} is signed") };
    }
    if missing.is_empty() && unsigned.is_empty() && forks.is_empty() {
        return Verdict { whole: Some(true), text: format!("{names} is whole, and signed by the key") };
    }
    Verdict { whole: None, text: format!("{names} is signed by the key, and nothing proves that it is whole") }
}

/// Returns the verdict about a copy that evidence was given for.
fn verdict_of_evidence(names: &str, found: &Copied, authenticated: &Authenticated, args: &VerifyArgs) -> Verdict {
    let Authenticated { proved, beyond, first_beyond, unknown, first_unknown, .. } = authenticated;
    let is_all = !args.partial && args.filter.is_none() && args.ends_with.is_none();
    let why = match (first_unknown, first_beyond, authenticated.first_stand_in) {
        (Some(seq), ..) => format!(
            "of {}, the first of them entry {seq}, the evidence has no tree: it was off, or its directory is not here",
            plural(*unknown, "entry", "entries")
        ),
        (None, Some(seq), _) => format!(
            "no checkpoint covers {} from entry {seq} on: take a newer copy of the evidence",
            plural(*beyond, "entry", "entries")
        ),
        (None, None, Some(seq)) => format!(
            "{} in place of entries that were truncated before the sink took them, the first as entry {seq}, and no tree has such a one",
            plural(authenticated.stand_ins, "GAP stands", "GAPs stand")
        ),
        (None, None, None) if !authenticated.forks.is_empty() => {
            "the log had two histories, and the evidence does not say which of them is that of the cluster".to_owned()
        }
        (None, None, None) if is_all && !authenticated.after.is_empty() => format!(
            "{} signed and not in it: give the files that have them, or say with --ends-with that it ends by intent",
            lacking(&authenticated.after)
        ),
        (None, None, None) => {
            let range = match (found.epochs.first(), found.epochs.last()) {
                (Some(first), Some(last)) => format!(", from entry {} to {}", first.first, last.last),
                _ => String::new(),
            };
            let text = format!("{names} is authentic{range}: every line is as it was logged and signed");
            return Verdict { whole: Some(true), text };
        }
    };
    Verdict {
        whole: None,
        text: format!("{names} is authentic in {}, and no more is proved: {why}", plural(*proved, "entry", "entries")),
    }
}

/// Names entries, as the subject of a sentence.
fn lacking(stretches: &[Lacking]) -> String {
    let named = |Lacking { epoch, first, last }: &Lacking| match first == last {
        true => format!("entry {first} of epoch {epoch}"),
        false => format!("entries {first} to {last} of epoch {epoch}"),
    };
    let is_one = matches!(stretches, [Lacking { first, last, .. }] if first == last);
    let names: Vec<String> = stretches.iter().map(named).collect();
    format!("{} {}", names.join(", "), if is_one { "is" } else { "are" })
}

/// Verdict about a copy without errors.
struct Verdict {
    /// True if it is proved to be whole and unaltered, and none if that is not known.
    whole: Option<bool>,
    text: String,
}

/// Summarizes the copy and what it was compared with, in sentences.
fn summary(found: &Copied, why_not: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for part in &found.epochs {
        lines.push(format!(
            "{} ({} to {}) of epoch {}",
            plural(part.entries, "entry", "entries"),
            part.first,
            part.last,
            part.epoch
        ));
    }
    if found.entries == 0 && found.authenticated.is_none() {
        lines.push("no entries".to_owned());
    }
    if found.removed > 0 {
        lines.push(format!(
            "{} removed before the sink took them, as the copy says",
            plural(found.removed, "entry was", "entries were")
        ));
    }
    if found.left_out > 0 {
        let why = match (found.partial, found.left_out_unseen) {
            (true, _) => "not in this copy",
            (false, 0) => "left out by the filter",
            (false, _) => "not in this copy; without its journal nothing shows that the filter leaves all of them out",
        };
        lines.push(format!("{} {why}", plural(found.left_out, "entry was", "entries were")));
    }
    lines.extend(found.authenticated.iter().flat_map(summary_of_trees));
    if let Some(Counted { revisions, recorded, in_gaps, .. }) = &found.revisions {
        let gaps = if *in_gaps > 0 { format!(", {} inside a GAP", count(*in_gaps)) } else { String::new() };
        let all = plural(*revisions, "revision", "revisions");
        lines.push(format!("of {all} that etcd has, {} in an entry{gaps}", count(*recorded)));
    }
    if found.authenticated.is_some() && found.compared == 0 {
        return lines;
    }
    lines.push(match found.compared {
        0 if !why_not.is_empty() => format!("not compared with the journal: {why_not}"),
        0 => "not compared with the journal: it has none of these entries (any more)".to_owned(),
        compared if compared == found.entries => "every entry is byte for byte what the journal gives".to_owned(),
        compared => format!("{} of them are byte for byte what the journal still has", count(compared)),
    });
    if found.followed > 0 {
        lines.push(format!(
            "{} from one version of an object to the next",
            plural(found.followed, "patch leads", "patches lead")
        ));
    }
    if found.unfollowed > 0 {
        lines.push(format!(
            "{} not followed, because the objects are too many to keep",
            plural(found.unfollowed, "patch was", "patches were")
        ));
    }
    lines
}

/// Summarizes the trees that a copy was compared with.
fn summary_of_trees(authenticated: &Authenticated) -> Vec<String> {
    let Authenticated { proved, checkpoints, missing, unsigned, forks, before, after, .. } = authenticated;
    let mut lines = Vec::new();
    for checkpoint in checkpoints {
        let range = match checkpoint.last {
            Some(last) => format!("entries {} to {last}", checkpoint.first),
            None => "no entries".to_owned(),
        };
        let time = checkpoint.time.as_deref().map_or_else(String::new, |time| format!(", signed at {time}"));
        lines.push(format!("a checkpoint over {range}{time}: {}", checkpoint.origin));
        for Cosigned { name, time } in &checkpoint.witnesses {
            lines.push(format!("witnessed by {name} at {time}"));
        }
    }
    for origin in missing {
        lines.push(format!("the tree before, {origin}, is not in the directory: its entries are not proved by it"));
    }
    for dir in unsigned {
        lines.push(format!("{dir} has tiles and no checkpoint: nothing in it is proved"));
    }
    for Fork { origin, followed_by } in forks {
        lines.push(format!(
            "{} follow the one tree {origin}: the log was restored from one copy more than once, or somebody made another history",
            followed_by.join(" and ")
        ));
    }
    for lacks in [before, after].into_iter().filter(|lacks| !lacks.is_empty()) {
        lines.push(format!("{} signed and not in this copy", lacking(lacks)));
    }
    if *proved > 0 {
        lines.push(format!("{} in a signed tree", plural(*proved, "line is", "lines are")));
    }
    lines
}

/// Prints the answer: what was found, then what is wrong, then the verdict.
fn answer(
    global: &Global,
    what: &str,
    summary: &[String],
    found: impl Serialize,
    problems: &[String],
    verdict: Verdict,
) -> Outcome {
    let whole = if problems.is_empty() { verdict.whole } else { Some(false) };
    let mut out = Out::new(global);
    match global.output.unwrap_or(Format::Line) {
        Format::Line | Format::Wide | Format::Name => {
            for line in summary {
                out.line(&sentence(out.look, 2, None, &printable(line)))?;
            }
            for problem in problems {
                let mut row = Row::new(out.look);
                row.uncut();
                row.hang(2);
                row.put(Some(Ink::Bad), "damage").put(None, ": ").put(None, &printable(problem));
                out.line(&row.finish())?;
            }
            let more = if problems.len() == Verified::MOST { " or more" } else { "" };
            let verdict = match problems.len() {
                0 => verdict.text,
                found => format!("{what} is damaged: {}{more}", plural(found as u64, "problem", "problems")),
            };
            let ink = match whole {
                Some(true) => Ink::Good,
                Some(false) => Ink::Bad,
                None => Ink::Change,
            };
            out.line(&sentence(out.look, 2, Some(ink), &printable(&verdict)))?;
        }
        format @ (Format::Json | Format::Yaml) => out.document(format, &Answer { whole, found, problems })?,
    }
    out.flush()?;
    Ok(match whole {
        Some(true) => Exit::Done,
        Some(false) => Exit::No,
        None => Exit::Unknown,
    })
}

/// One file of a copy.
struct Source {
    name: String,
    lines: Box<dyn BufRead>,
    compressed: bool,
    /// Epoch and seq of its first entry: an epoch begins with its time, so that they sort in order.
    first: Option<(String, u64)>,
    /// Bytes, where that is known and means lines.
    size: u64,
}

impl Source {
    fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::io(format!("cannot read {name}"), &error);
        let (raw, size): (Box<dyn Read>, u64) = if path == Path::new("-") {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            (Box::new(file), size)
        };
        let mut raw = BufReader::with_capacity(64 << 10, raw);
        let start = raw.fill_buf().map_err(failed)?;
        let [is_zstd, is_gzip] = [ZSTD, GZIP].map(|magic| start.starts_with(magic));
        let compressed = is_zstd || is_gzip;
        let mut lines: Box<dyn BufRead> = if is_zstd {
            let decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(failed)?;
            Box::new(BufReader::with_capacity(64 << 10, decoder))
        } else if is_gzip {
            Box::new(BufReader::with_capacity(64 << 10, MultiGzDecoder::new(raw)))
        } else {
            Box::new(raw)
        };
        if is_archive(&mut lines) {
            return Err(Failure::usage(format!(
                "{name} is an archive: unpack it, and give the entries.jsonl and the directory evidence that are in it"
            )));
        }
        let first = first(&mut lines);
        Ok(Self { name, lines, compressed, first, size: if compressed { 0 } else { size } })
    }
}

/// First bytes of a file in a format.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Place of the mark of a tar archive.
const USTAR: std::ops::Range<usize> = 257..262;

/// Reports whether what is read is a tar archive. Nothing is consumed.
fn is_archive(lines: &mut dyn BufRead) -> bool {
    lines.fill_buf().is_ok_and(|start| start.get(USTAR) == Some(b"ustar"))
}

/// Epoch and seq of the first entry, which stand in the first bytes of its line. Nothing is consumed.
fn first(lines: &mut dyn BufRead) -> Option<(String, u64)> {
    let start = lines.fill_buf().ok()?;
    let text = std::str::from_utf8(&start[..start.len().min(256)])
        .unwrap_or_else(|error| std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default());
    let (seq, rest) = text.strip_prefix("{\"v\":1,\"seq\":")?.split_once(",\"epoch\":\"")?;
    Some((rest.split_once('"')?.0.to_owned(), seq.parse().ok()?))
}
