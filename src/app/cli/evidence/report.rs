//! `decklog evidence report`: one archive for an auditor, which is checked without decklog's journal.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

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
use crate::core::os::OpenOptionsExt as _;
use crate::core::wire::Entry;
use crate::evidence::archive::BEFORE;
use crate::evidence::checkpoint::Checkpoint;
use crate::evidence::note::Note;
use crate::evidence::place::Directory;
use crate::evidence::tiles::{self, CHECKPOINT};
use crate::evidence::tree::Tree;
use crate::journal::{Reader, StoredEntry, TreeRow};
use crate::query::line::Line;
use crate::query::questions::coverage::Cover;
use crate::query::questions::tail::{Item, Tail};
use crate::query::select::{Filters, Select};

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
    /// What is watched of it, and how far.
    sources: Vec<Followed>,
}

/// A source: its range ends with a version, and what its configuration leaves out is in no entry.
#[derive(Debug, Serialize)]
struct Followed {
    /// The namespace, empty for all.
    namespace: String,
    /// Namespaces that are left out.
    excluded: Vec<String>,
    /// A selector takes a part of the objects.
    selects: bool,
    suppressed: u64,
    /// Version up to which it was followed when the archive was made; none where its position is lost.
    followed_to: Option<String>,
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
    /// GAPs of the time, selected or not.
    gaps: Vec<String>,
    checkpoints: Vec<String>,
    is_selected: bool,
    /// Entries between two others are not among them.
    has_holes: bool,
    /// Stretches of entries that are signed.
    signed: Vec<(u64, u64)>,
    /// Entries that are in no signed tree, and the first of them.
    unsigned: u64,
    first_unsigned: Option<u64>,
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
    let trees = trees(&reader)?;
    if trees.is_empty() {
        return Err(Failure::new(
            Exit::No,
            "nothing of this journal is signed: [evidence] in the configuration switches that on",
        ));
    }
    let signed = |(_, checkpoint): &(TreeRow, Checkpoint)| Some((checkpoint.origin.first, checkpoint.last()?));
    let mut contents = Contents { signed: trees.iter().filter_map(signed).collect(), ..Contents::default() };
    // What can be wrong with the arguments is, before anything that is there is written over.
    let entries = entries(args, global, &mut reader, &mut contents)?;
    let complete = json(&completeness(&reader, args, global, &mut contents)?);
    let files = vec![("completeness.json", complete), ("coverage.json", coverage(args, global)?)];
    let written = write(args, global, &mut reader, Parts { entries, trees, files }, &mut contents);
    let bytes = written.inspect_err(|_| {
        // A part of an archive is none. What is no file, such as a pipe, stays.
        if args.file.is_file() {
            drop(std::fs::remove_file(&args.file));
        }
    })?;
    let mut out = Out::new(global);
    out.flush()?;
    complain(&format!(
        "wrote {}: {}, {}, {}",
        args.file.display(),
        plural(contents.entries, "entry", "entries"),
        plural(contents.checkpoints.len() as u64, "checkpoint", "checkpoints"),
        size(bytes)
    ));
    if let Some(unsigned) = contents.unsigned() {
        complain(&unsigned);
    }
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

    /// Returns the first and the last moment. Without a first one a question would be for the newest entries.
    fn period(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        (self.since().or(Some(Timestamp::UNIX_EPOCH)), self.until())
    }
}

/// Contents of the archive that were made before it.
struct Parts {
    entries: File,
    trees: Vec<(TreeRow, Checkpoint)>,
    /// Files by their names.
    files: Vec<(&'static str, Vec<u8>)>,
}

/// Writes the archive. Returns its bytes.
fn write(
    args: &ReportArgs,
    global: &Global,
    reader: &mut Reader,
    parts: Parts,
    contents: &mut Contents,
) -> Result<u64, Failure> {
    let failed = |error| Failure::io(format!("cannot write {}", args.file.display()), &error);
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&args.file).map_err(failed)?;
    let tar = tar::Builder::new(GzEncoder::new(BufWriter::new(file), Compression::default()));
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    let mut bundle = Bundle { tar, now };
    let Parts { entries, trees, files } = parts;
    let len = entries.metadata().map_err(failed)?.len();
    bundle.put_from("entries.jsonl", len, entries).map_err(failed)?;
    let directories = directories(global);
    for (row, checkpoint) in trees {
        contents.add(&checkpoint);
        write_tree(reader, row, &checkpoint, &directories, &mut bundle, &args.file)?;
    }
    for (name, bytes) in files {
        bundle.put(name, &bytes).map_err(failed)?;
    }
    if let Some(key) = public_key(global) {
        bundle.put("key.pub", format!("{key}\n").as_bytes()).map_err(failed)?;
    }
    bundle.put("verify.py", include_bytes!("../../../evidence/verify.py")).map_err(failed)?;
    bundle.put("index.html", page(contents).as_bytes()).map_err(failed)?;
    let written = bundle.tar.into_inner().and_then(GzEncoder::finish).map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(file.metadata().map_err(failed)?.len())
}

/// Reads the lines that were asked for into a file without a name: the archive wants their length first. With filters the senders of the
/// changes are among them, who are named by entries of their own.
fn entries(args: &ReportArgs, global: &Global, reader: &mut Reader, contents: &mut Contents) -> Result<File, Failure> {
    let failed = |error| Failure::io(format!("cannot write beside {}", args.file.display()), &error);
    let name = format!(".{}.{}", args.file.file_name().unwrap_or_default().to_string_lossy(), std::process::id());
    let spool = args.file.with_file_name(name);
    let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&spool);
    let mut spooled =
        open.and_then(|file| std::fs::remove_file(&spool).map(|()| BufWriter::new(file))).map_err(failed)?;
    let mut put = |contents: &mut Contents, stored: &StoredEntry| {
        contents.count(stored.seq, &stored.line);
        spooled.write_all(&stored.line).and_then(|()| spooled.write_all(b"\n")).map_err(failed)
    };
    let mut select = args.select.select();
    contents.is_selected = select.picks();
    (select.only.since, select.only.until) = args.period();
    let mut senders: BTreeMap<Seq, StoredEntry> = BTreeMap::new();
    ask(global, select, &mut |stored| {
        while let Some(sender) = senders.first_entry().filter(|sender| *sender.key() <= stored.seq) {
            let sender = sender.remove();
            if sender.seq < stored.seq {
                put(contents, &sender)?;
            }
        }
        put(contents, stored)?;
        if contents.is_selected
            && let Some(sender) = reader.actor_of(stored.seq)?.filter(|sender| sender.seq > stored.seq)
        {
            senders.insert(sender.seq, sender);
        }
        Ok(())
    })?;
    senders.values().try_for_each(|sender| put(contents, sender))?;
    let mut file = spooled.into_inner().map_err(|error| failed(error.into_error()))?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(file)
}

/// Asks for entries, oldest first.
fn ask(
    global: &Global,
    select: Select,
    put: &mut dyn FnMut(&StoredEntry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let question = Tail { select, folds: false, follow: false, last: None, reverse: false, before: None };
    let to_file = Global { to_file: true, ..global.clone() };
    to_file.ask(question, &mut |item| match item {
        Item::Entry(Line(stored)) => put(&stored),
        Item::Begin { .. } | Item::Rewrite(..) | Item::Pause => Ok(()),
    })?;
    Ok(())
}

impl Contents {
    fn count(&mut self, seq: Seq, line: &[u8]) {
        self.entries += 1;
        self.first.get_or_insert(seq.0);
        self.has_holes |= self.last.is_some_and(|last| last + 1 != seq.0);
        self.last = Some(seq.0);
        if !self.signed.iter().any(|(first, last)| (*first..=*last).contains(&seq.0)) {
            self.unsigned += 1;
            self.first_unsigned.get_or_insert(seq.0);
        }
        let Ok(entry) = Entry::parse(line) else { return };
        *self.types.entry(entry.op.as_str()).or_default() += 1;
        let actor = entry.actor.and_then(|actor| serde_json::from_str::<serde_json::Value>(actor.get()).ok());
        if let Some(certainty) = actor.as_ref().and_then(|actor| actor["certainty"].as_str()) {
            *self.senders.entry(certainty.to_owned()).or_default() += 1;
        }
    }

    fn add(&mut self, checkpoint: &Checkpoint) {
        let range = checkpoint
            .last()
            .map_or_else(|| "no entries".to_owned(), |last| format!("entries {} to {last}", checkpoint.origin.first));
        self.checkpoints.push(format!("{range}: {}", checkpoint.origin));
    }

    /// Says which entries are not signed; none if all are.
    fn unsigned(&self) -> Option<String> {
        let first = self.first_unsigned?;
        let count = plural(self.unsigned, "entry is", "entries are");
        Some(format!(
            "{count} in no signed tree, from entry {first} on, so that `verify` ends with 3: what came in the last minute is signed soon, and \
             what came while evidence was off never is"
        ))
    }
}

/// Returns the trees that are signed, with their last checkpoints.
fn trees(reader: &Reader) -> Result<Vec<(TreeRow, Checkpoint)>, Failure> {
    let mut signed = Vec::new();
    for row in reader.trees()? {
        let Some(note) = &row.note else { continue };
        let read = Note::parse(note.as_bytes()).and_then(|note| Checkpoint::parse(&note.text));
        let checkpoint = read.map_err(|why| Failure::internal(format!("a checkpoint in the journal: {why}")))?;
        signed.push((row, checkpoint));
    }
    Ok(signed)
}

/// Writes a tree up to its last signed checkpoint, out of the journal.
fn write_tree<W: Write>(
    reader: &mut Reader,
    row: TreeRow,
    checkpoint: &Checkpoint,
    directories: &[Directory],
    bundle: &mut Bundle<W>,
    file: &Path,
) -> Result<(), Failure> {
    let failed = |error| Failure::io(format!("cannot write {}", file.display()), &error);
    let dir = format!("evidence/{}", checkpoint.origin.directory());
    let (before, note) = (row.before.clone(), row.note.clone().unwrap_or_default());
    let mut tree = Tree::read(reader, row, directories.to_vec())?;
    for tile in tiles::between(0, checkpoint.size) {
        bundle.put(&format!("{dir}/{}", tile.path()), &tree.tile(reader, tile)?).map_err(failed)?;
    }
    if let Some(before) = before {
        bundle.put(&format!("{dir}/{BEFORE}"), before.as_bytes()).map_err(failed)?;
    }
    bundle.put(&format!("{dir}/{CHECKPOINT}"), note.as_bytes()).map_err(failed)
}

/// Returns what of the time of the report etcd can be asked about, by source. The filters of the report do not count here, nor for the GAPs of
/// its page.
fn completeness(
    reader: &Reader,
    args: &ReportArgs,
    global: &Global,
    contents: &mut Contents,
) -> Result<BTreeMap<String, Completeness>, Failure> {
    let mut found: BTreeMap<String, Completeness> = BTreeMap::new();
    for source in reader.sources()?.into_iter().filter(|source| source.active) {
        let resource = source.resource.full_name();
        let one = found.entry(resource).or_default();
        (one.suppressed, one.scoped) = (one.suppressed + source.suppressed, one.scoped || source.scoped);
        one.sources.push(Followed {
            namespace: source.namespace,
            excluded: source.excluded.iter().map(ToString::to_string).collect(),
            selects: source.selects,
            suppressed: source.suppressed,
            followed_to: source.resume,
        });
    }
    let (since, until) = args.period();
    let by_journal_time = args.select.select().only.by_journal_time;
    let select = Select { only: Filters { since, until, by_journal_time, ..Filters::default() }, ..Select::default() };
    ask(global, select, &mut |stored| {
        let Ok(entry) = Entry::parse(&stored.line) else { return Ok(()) };
        let group = entry.group();
        let resource =
            if group.is_empty() { entry.resource.to_string() } else { format!("{}.{group}", entry.resource) };
        let one = found.entry(resource).or_default();
        // A deletion can have one right before it.
        if let Some(gap) = entry.gap().or_else(|| entry.gap_before()) {
            let since = gap.since.as_deref().map_or_else(String::new, |since| format!(", since {since}"));
            let text = format!("entry {}, at {}{since}: {} ({})", stored.seq, entry.time, entry.resource, gap.why);
            contents.gaps.push(text);
            one.gaps.push(MissingRange {
                seq: entry.seq,
                why: gap.why.to_string(),
                from: gap.from.clone(),
                to: gap.to.clone(),
            });
        }
        if !matches!(entry.op, EntryType::Actor | EntryType::Gap) {
            one.resource_versions.extend(entry.resource_version.as_deref().map(str::to_owned));
        }
        Ok(())
    })?;
    Ok(found)
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
    let is_partial = contents.is_selected || contents.has_holes;
    let ends = match contents.last {
        Some(last) if !is_partial => format!(" --ends-with {last}"),
        _ if is_partial => " --partial".to_owned(),
        _ => String::new(),
    };
    let lies = if is_partial { "altered or inserted" } else { "altered, dropped or inserted" };
    let mut remarks = String::new();
    if contents.is_selected {
        remarks.push_str("<p>Entries were selected: what is not in entries.jsonl was not asked for. Each line is proved by itself.</p>\n");
    } else if contents.has_holes {
        remarks.push_str("<p>Entries are missing between others: they happened at another time than they were logged. Each line is proved by itself.</p>\n");
    }
    if let Some(unsigned) = contents.unsigned() {
        remarks.push_str(&format!("<p>{}</p>\n", escaped(&unsigned)));
    }
    let checkpoints = list(&contents.checkpoints);
    let entries = plural(contents.entries, "entry", "entries");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Evidence of decklog</title>\n\
         <style>body{{font:16px/1.5 system-ui;max-width:48rem;margin:2rem auto;padding:0 1rem}}code{{overflow-wrap:anywhere}}</style>\n\
         <h1>Evidence of decklog</h1>\n<p>{entries}{range}.</p>\n{types}\n{remarks}\
         <h2>Check it</h2>\n<p>Take the public key from those who run this log, not from this archive, and run one of these in its directory:</p>\n\
         <pre>decklog verify entries.jsonl --evidence evidence --key KEY{ends}\npython3 verify.py evidence entries.jsonl</pre>\n\
         <p>The first proves that no line was {lies} after it was logged, and checks the signatures. The second proves that each line is in its place in the trees.</p>\n\
         <h2>Signed checkpoints</h2>\n{checkpoints}\n\
         <h2>Senders, by how certain they are</h2>\n{senders}\n\
         <h2>Times of which changes may be missing (GAP)</h2>\n{gaps}\n\
         <p>coverage.json says of which time the log knows everything. completeness.json has the resource versions of every entry of that time:\n\
         each revision that etcd has of a resource is one of them, lies inside a GAP, or is excluded by the configuration. No signature covers these two files and this page: they are what this decklog said.</p>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
