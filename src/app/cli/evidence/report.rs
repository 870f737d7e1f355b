//! `decklog evidence report`: one archive for an auditor, which is checked without decklog's journal.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;

use super::super::names::ago;
use super::super::output::{Out, plural, size};
use super::super::prove::directories;
use super::super::select::SelectArgs;
use super::super::{Exit, Failure, Global, Outcome, complain};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::evidence::archive::BEFORE;
use crate::evidence::checkpoint::Checkpoint;
use crate::evidence::note::Note;
use crate::evidence::place::Directory;
use crate::evidence::tiles::{self, CHECKPOINT};
use crate::evidence::tree::Tree;
use crate::journal::Reader;
use crate::query::line::Line;
use crate::query::questions::coverage::Cover;
use crate::query::questions::tail::{Item, Tail};

/// Entries that are read at once, and their bytes.
const PAGE: (usize, usize) = (500, 8 << 20);
/// Directory of the archive.
const TOP: &str = "decklog-evidence";

/// Arguments of `decklog evidence report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The archive to write, a .tar.gz
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Start, as --since takes it [default: the start of the log]
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true, conflicts_with = "since")]
    pub from: Option<Timestamp>,
    /// End, as --until takes it [default: now]
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true, conflicts_with = "until")]
    pub to: Option<Timestamp>,
    /// Which entries.
    #[command(flatten)]
    pub select: SelectArgs,
}

/// What etcd can be asked about: each revision of a source in its range is one of the versions, or inside a gap, or excluded.
#[derive(Debug, Default, Serialize)]
struct Completeness {
    /// Versions of entries, in their order.
    resource_versions: Vec<String>,
    /// Versions between which changes may be missing.
    gaps: Vec<MissingRange>,
    /// Changes that `ignore` kept out of the log, over the life of the journal.
    suppressed: u64,
    /// Only a part of the resource is watched.
    scoped: bool,
}

#[derive(Debug, Serialize)]
struct MissingRange {
    seq: u64,
    why: String,
    from: Option<String>,
    to: Option<String>,
}

/// Contents of the archive, for its page.
#[derive(Debug, Default)]
struct Contents {
    entries: u64,
    /// Entries by type.
    types: BTreeMap<&'static str, u64>,
    /// Senders by certainty.
    senders: BTreeMap<String, u64>,
    first: Option<u64>,
    last: Option<u64>,
    gaps: Vec<String>,
    checkpoints: Vec<String>,
    is_selected: bool,
}

/// The archive while it is written.
struct Bundle<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    now: u64,
}

impl<W: Write> Bundle<W> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        self.put_from(name, bytes.len() as u64, bytes)
    }

    fn put_from(&mut self, name: &str, len: u64, content: impl std::io::Read) -> std::io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(len);
        header.set_mode(0o644);
        header.set_mtime(self.now);
        self.tar.append_data(&mut header, format!("{TOP}/{name}"), content)
    }
}

/// Writes the archive.
///
/// # Errors
/// Where nothing is signed, the arguments name what the journal does not know, or the file cannot be written.
pub(super) fn main(args: &ReportArgs, global: &Global) -> Outcome {
    let (mut reader, _) = global.reader()?;
    if reader.trees()?.iter().all(|tree| tree.note.is_none()) {
        return Err(Failure::new(
            Exit::No,
            "nothing of this journal is signed: [evidence] in the configuration switches that on",
        ));
    }
    let failed = |error| Failure::io(format!("cannot write {}", args.file.display()), &error);
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&args.file).map_err(failed)?;
    let tar = tar::Builder::new(GzEncoder::new(BufWriter::new(file), Compression::default()));
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    let mut bundle = Bundle { tar, now };
    let mut contents = Contents::default();
    entries(args, global, &mut bundle, &mut contents)?;
    trees(&mut reader, &directories(global), &mut bundle, &mut contents, &args.file)?;
    bundle.put("completeness.json", &json(&completeness(&mut reader, args)?)).map_err(failed)?;
    bundle.put("coverage.json", &coverage(args, global)?).map_err(failed)?;
    if let Some(key) = public_key(global) {
        bundle.put("key.pub", format!("{key}\n").as_bytes()).map_err(failed)?;
    }
    bundle.put("verify.py", include_bytes!("../../../evidence/verify.py")).map_err(failed)?;
    bundle.put("index.html", page(&contents).as_bytes()).map_err(failed)?;
    let written = bundle.tar.into_inner().and_then(GzEncoder::finish).map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut out = Out::new(global);
    out.flush()?;
    complain(&format!(
        "wrote {}: {}, {}, {}",
        args.file.display(),
        plural(contents.entries, "entry", "entries"),
        plural(contents.checkpoints.len() as u64, "checkpoint", "checkpoints"),
        size(bytes)
    ));
    Ok(Exit::Done)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("texts and numbers always serialise")
}

impl ReportArgs {
    fn since(&self) -> Option<Timestamp> {
        self.from.or(self.select.only.since)
    }

    fn until(&self) -> Option<Timestamp> {
        self.to.or(self.select.only.until)
    }
}

/// Writes the lines that were asked for. The archive wants their length first, so they go through a file without a name.
fn entries<W: Write>(
    args: &ReportArgs,
    global: &Global,
    bundle: &mut Bundle<W>,
    contents: &mut Contents,
) -> Result<(), Failure> {
    let failed = |error| Failure::io(format!("cannot write beside {}", args.file.display()), &error);
    let spool = args.file.with_extension("entries");
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&spool);
    let mut spooled =
        open.and_then(|file| std::fs::remove_file(&spool).map(|()| BufWriter::new(file))).map_err(failed)?;
    let mut select = args.select.select();
    contents.is_selected = select.picks();
    (select.only.since, select.only.until) = (args.since().or(Some(Timestamp::UNIX_EPOCH)), args.until());
    let question = Tail { select, folds: false, follow: false, last: None, reverse: false, before: None };
    let to_file = Global { to_file: true, ..global.clone() };
    to_file.ask(question, &mut |item| {
        let Item::Entry(Line(stored)) = item else { return Ok(()) };
        contents.count(stored.seq, &stored.line);
        spooled.write_all(&stored.line).and_then(|()| spooled.write_all(b"\n")).map_err(failed)
    })?;
    let mut file = spooled.into_inner().map_err(|error| failed(error.into_error()))?;
    let len = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    bundle.put_from("entries.jsonl", len, file).map_err(failed)
}

impl Contents {
    fn count(&mut self, seq: Seq, line: &[u8]) {
        self.entries += 1;
        self.first.get_or_insert(seq.0);
        self.last = Some(seq.0);
        let Ok(entry) = Entry::parse(line) else { return };
        *self.types.entry(entry.op.as_str()).or_default() += 1;
        if let Some(gap) = entry.gap() {
            let since = gap.since.as_deref().map_or_else(String::new, |since| format!(", since {since}"));
            self.gaps.push(format!("entry {seq}, at {}{since}: {} ({})", entry.time, entry.resource, gap.why));
        }
        let actor = entry.actor.and_then(|actor| serde_json::from_str::<serde_json::Value>(actor.get()).ok());
        if let Some(certainty) = actor.as_ref().and_then(|actor| actor["certainty"].as_str()) {
            *self.senders.entry(certainty.to_owned()).or_default() += 1;
        }
    }
}

/// Writes every tree up to its last signed checkpoint, out of the journal.
fn trees<W: Write>(
    reader: &mut Reader,
    directories: &[Directory],
    bundle: &mut Bundle<W>,
    contents: &mut Contents,
    file: &std::path::Path,
) -> Result<(), Failure> {
    let failed = |error| Failure::io(format!("cannot write {}", file.display()), &error);
    for row in reader.trees()? {
        let Some(note) = row.note.clone() else { continue };
        let read = Note::parse(note.as_bytes()).and_then(|note| Checkpoint::parse(&note.text));
        let checkpoint = read.map_err(|why| Failure::internal(format!("a checkpoint in the journal: {why}")))?;
        let dir = format!("evidence/{}", checkpoint.origin.directory());
        let before = row.before.clone();
        let mut tree = Tree::read(reader, row, directories.to_vec())?;
        for tile in tiles::between(0, checkpoint.size) {
            bundle.put(&format!("{dir}/{}", tile.path()), &tree.tile(reader, tile)?).map_err(failed)?;
        }
        if let Some(before) = before {
            bundle.put(&format!("{dir}/{BEFORE}"), before.as_bytes()).map_err(failed)?;
        }
        bundle.put(&format!("{dir}/{CHECKPOINT}"), note.as_bytes()).map_err(failed)?;
        let range = checkpoint
            .last()
            .map_or_else(|| "no entries".to_owned(), |last| format!("entries {} to {last}", checkpoint.origin.first));
        contents.checkpoints.push(format!("{range}: {}", checkpoint.origin));
    }
    Ok(())
}

/// Returns what of the time of the report etcd can be asked about, by source. The filters of the report do not count here.
fn completeness(reader: &mut Reader, args: &ReportArgs) -> Result<BTreeMap<String, Completeness>, Failure> {
    let mut found: BTreeMap<String, Completeness> = BTreeMap::new();
    for source in reader.sources()?.into_iter().filter(|source| source.active) {
        let resource = source.resource.full_name();
        let one = found.entry(resource).or_default();
        (one.suppressed, one.scoped) = (one.suppressed + source.suppressed, one.scoped || source.scoped);
    }
    let mut after = args.since().map_or(Ok(Seq(0)), |since| reader.last_before(since.as_microsecond()))?;
    let end = args.until().map_or(Ok(Seq(u64::MAX)), |until| reader.last_before(until.as_microsecond() + 1))?;
    loop {
        let page = reader.entries_after(after, PAGE.0, PAGE.1)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for stored in &page {
            if stored.seq > end {
                return Ok(found);
            }
            let Ok(entry) = Entry::parse(&stored.line) else { continue };
            let group = entry.group();
            let resource =
                if group.is_empty() { entry.resource.to_string() } else { format!("{}.{group}", entry.resource) };
            let one = found.entry(resource).or_default();
            match (entry.op, entry.gap()) {
                (EntryType::Actor, _) => {}
                (_, Some(gap)) => {
                    one.gaps.push(MissingRange {
                        seq: entry.seq,
                        why: gap.why.to_string(),
                        from: gap.from.clone(),
                        to: gap.to.clone(),
                    });
                }
                _ => one.resource_versions.extend(entry.resource_version.as_deref().map(str::to_owned)),
            }
        }
    }
}

/// Returns the answer of `decklog coverage` for the time and the objects of the report, as JSON.
fn coverage(args: &ReportArgs, global: &Global) -> Result<Vec<u8>, Failure> {
    let mut found = Vec::new();
    let cover = Cover {
        objects: args.select.objects.clone(),
        namespaces: args.select.only.namespace.clone(),
        since: args.since(),
        until: args.until(),
    };
    global.ask(cover, &mut |covered| {
        found = json(&covered);
        Ok(())
    })?;
    Ok(found)
}

/// Returns the public key, where this machine has the key at hand.
fn public_key(global: &Global) -> Option<String> {
    let config = global.has_config().then(|| global.load_for_reading().ok())??.config;
    let keys = config.evidence?.keys().ok()?;
    keys.first().map(|key| key.verifier().to_string())
}

/// Renders the page for people.
fn page(contents: &Contents) -> String {
    let range = match (contents.first, contents.last) {
        (Some(first), Some(last)) => format!(", from entry {first} to {last}"),
        _ => String::new(),
    };
    let list = |items: &[String]| {
        let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
        format!("<ul>\n{items}</ul>")
    };
    let counts = |counts: &mut dyn Iterator<Item = (String, u64)>| {
        let rows: Vec<String> = counts.map(|(name, count)| format!("{name}: {count}")).collect();
        list(&rows)
    };
    let types = counts(&mut contents.types.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    let senders = counts(&mut contents.senders.iter().map(|(name, count)| (name.clone(), *count)));
    let gaps = if contents.gaps.is_empty() { "<p>None.</p>".to_owned() } else { list(&contents.gaps) };
    let partial = if contents.is_selected { " --partial" } else { "" };
    let selected = if contents.is_selected {
        "<p>Entries were selected: what is not in entries.jsonl was not asked for. Each line is proved by itself.</p>"
    } else {
        ""
    };
    let checkpoints = list(&contents.checkpoints);
    let entries = plural(contents.entries, "entry", "entries");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Evidence of decklog</title>\n\
         <style>body{{font:16px/1.5 system-ui;max-width:48rem;margin:2rem auto;padding:0 1rem}}code{{overflow-wrap:anywhere}}</style>\n\
         <h1>Evidence of decklog</h1>\n<p>{entries}{range}.</p>\n{types}\n{selected}\n\
         <h2>Check it</h2>\n<p>Take the public key from those who run this log, not from this archive, and run one of these in its directory:</p>\n\
         <pre>decklog verify entries.jsonl --evidence evidence --key KEY{partial}\npython3 verify.py evidence entries.jsonl</pre>\n\
         <p>Both prove that no line was altered, dropped or inserted after it was logged. The first checks the signatures as well.</p>\n\
         <h2>Signed checkpoints</h2>\n{checkpoints}\n\
         <h2>Senders, by how certain they are</h2>\n{senders}\n\
         <h2>Times of which changes may be missing (GAP)</h2>\n{gaps}\n\
         <p>coverage.json says of which time the log knows everything. completeness.json has the resource versions of every entry of that time:\n\
         each revision that etcd has of a resource is one of them, lies inside a GAP, or is excluded by the configuration.</p>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
