//! The page's own files, and the page with its data in one file.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::answer::Problem;
use super::entries::entry;
use super::index::Index;
use super::lanes::{Lanes, Most, Present, lanes};
use super::overview::{Mode, Overview, overview};
use super::query::Asked;
use super::window::{Before, Histogram, extent, histogram};
use super::writers::{Writers, writers};
use crate::journal::Reader;
use crate::model::Seq;
use crate::words::clock::Clock;
use crate::words::row::{plural, size};

const INDEX: &str = include_str!("../../ui/dist/index.html");
const SCRIPT: &str = include_str!("../../ui/dist/app.js");
const STYLE: &str = include_str!("../../ui/dist/app.css");

/// Placeholders of the embedded files in the page.
const STYLE_LINK: &str = r#"<link rel="stylesheet" href="app.css">"#;
const SCRIPT_LINK: &str = r#"<script src="app.js" defer></script>"#;
const HEAD: &str = "<head>\n";

/// The file with this name, and what it is.
pub(super) fn file(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "" | "index.html" => Some((INDEX, "text/html; charset=utf-8")),
        "app.js" => Some((SCRIPT, "text/javascript; charset=utf-8")),
        "app.css" => Some((STYLE, "text/css; charset=utf-8")),
        _ => None,
    }
}

/// The page with its data in it.
#[derive(Debug)]
pub struct OneFile {
    /// The file.
    pub html: String,
    /// Objects in it, and entries with all that they say.
    pub objects: usize,
    /// See `objects`.
    pub entries: usize,
    /// Sentence about omitted data.
    pub left_out: Option<String>,
}

/// Data of the one-file form.
#[derive(Serialize)]
struct Data {
    overview: Overview,
    lanes: Lanes,
    histogram: Histogram,
    entries: std::collections::BTreeMap<u64, Box<RawValue>>,
    churn: Writers,
    left_out: Option<String>,
}

/// Time limit for building a file, which a person waits for.
pub(super) const FILE_TIMEOUT: Duration = Duration::from_secs(120);
/// Limits of lanes and marks that a page draws.
const MOST: Most = Most { lanes: 5000, marks: 100_000 };
const BUCKETS: usize = 1000;

/// The page with a part of the log in it. Entries are in it with all that they say, the newest first, until they have `most`
/// bytes.
pub(super) fn one_file(
    index: &Index,
    reader: &mut Reader,
    dir: &Path,
    asked: &Asked,
    clock: &Clock,
    (most, deadline): (usize, Instant),
) -> Result<OneFile, Problem> {
    let mut overview = overview(reader, dir, Mode::File)?;
    let now = clock.now.as_microsecond();
    let present = Present::of(reader, now, crate::status::daemon(dir).running)?;
    let lanes = lanes(index, reader, asked, MOST, present, deadline)?;
    let histogram = histogram(index, reader, asked, BUCKETS, present.end, deadline)?;
    let churn = writers(reader, asked, extent(reader, asked, now)?, deadline)?;
    // It may be handed on to somebody who may see this and nothing else.
    overview.narrow(asked, reader, &lanes.namespaces())?;
    let mut seqs: Vec<u64> = lanes.lanes.iter().flat_map(|lane| lane.marks.iter().map(|mark| mark.seq)).collect();
    seqs.sort_unstable_by(|one, other| other.cmp(one));
    let (mut entries, mut bytes) = (std::collections::BTreeMap::new(), 0);
    let (mut left, mut late) = (0_u64, 0_u64);
    for seq in seqs {
        if bytes >= most {
            left += 1;
            continue;
        }
        if Instant::now() > deadline {
            late += 1;
            continue;
        }
        // Retention may have removed it meanwhile.
        let Ok(whole) = entry(index, reader, Seq(seq), clock, false, deadline) else { continue };
        let bug = |error: serde_json::Error| Problem::bug(format!("an entry cannot be written: {error}"));
        let text = serde_json::to_string(&whole).map_err(bug)?;
        if bytes + text.len() > most {
            left += 1;
            continue;
        }
        bytes += text.len();
        entries.insert(seq, RawValue::from_string(text).map_err(bug)?);
    }
    let mut said = Vec::new();
    if left > 0 {
        said.push(format!(
            "{} in this file without what changed, because it would have more than {}",
            plural(left, "entry is", "entries are"),
            size(most as u64)
        ));
    }
    if late > 0 {
        said.push(format!(
            "{} in this file without what changed, because it took more than {} seconds",
            plural(late, "entry is", "entries are"),
            FILE_TIMEOUT.as_secs()
        ));
    }
    let looked_back = lanes.left_out().and_then(|left| left.before.as_ref()).max(histogram.looked_back());
    if let Some(Before { before }) = looked_back {
        said.push(format!(
            "what was before {before} was not looked at, because it took more than {} seconds: from then on the file is whole",
            FILE_TIMEOUT.as_secs()
        ));
    }
    if let Some(left) = lanes.left_out() {
        let counted = [
            (left.lanes as u64, "object", "objects"),
            (left.marks, "entry", "entries"),
            (left.unwatched as u64, "hatched stretch", "hatched stretches"),
        ];
        let counted: Vec<String> = counted
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, several)| plural(count, one, several))
            .collect();
        if !counted.is_empty() {
            said.push(format!("not in this file: {}", counted.join(", ")));
        }
    }
    if churn.truncated() {
        said.push("who wrote what was counted for a part of the time".to_owned());
    }
    let left_out =
        (!said.is_empty()).then(|| format!("{}; a later --since, or a filter, leaves room for more", said.join("; ")));
    let (objects, count) = (lanes.lanes.len(), entries.len());
    let said = left_out.clone();
    let data = Data { overview, lanes, histogram, entries, churn, left_out };
    let json =
        serde_json::to_string(&data).map_err(|error| Problem::bug(format!("the file cannot be written: {error}")))?;
    Ok(OneFile { html: whole(&json)?, objects, entries: count, left_out: said })
}

/// The page with this JSON in it.
fn whole(json: &str) -> Result<String, Problem> {
    let data = format!(r#"<script type="application/json" id="decklog-data">{}</script>"#, inert(json));
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let mut page = INDEX.to_owned();
    for (place, put) in [
        (HEAD, format!("{HEAD}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n")),
        (STYLE_LINK, format!("<style>{STYLE}</style>")),
        (SCRIPT_LINK, format!("{data}\n<script>{SCRIPT}</script>")),
    ] {
        if page.matches(place).count() != 1 {
            return Err(Problem::bug(format!("the page has no {place:?}; this is a bug")));
        }
        page = page.replacen(place, &put, 1);
    }
    Ok(page)
}

/// JSON that ends no element of a page and begins none.
fn inert(json: &str) -> String {
    // Within JSON these stand in texts alone.
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_file_form_holds_its_parts_and_nothing_of_elsewhere() {
        let page = whole(r#"{"a":"</script><script>alert(1)</script>\u2028"}"#).unwrap();
        assert!(!page.contains("alert(1)</script>") && page.contains(r"\u003c/script>\u003cscript>alert(1)"), "{page}");
        assert!(!page.contains("src=\"app.js\"") && !page.contains("href=\"app.css\""));
        assert!(page.contains(SCRIPT) && page.contains(STYLE));
        let data = page.split("id=\"decklog-data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["a"], "</script><script>alert(1)</script>\u{2028}");
        let policy = page.split("content=\"default-src").nth(1).unwrap().split('"').next().unwrap();
        assert!(!policy.contains("unsafe") && policy.contains("script-src 'sha256-"), "{policy}");
    }

    #[test]
    fn the_files_of_the_page_can_stand_in_it() {
        for text in [SCRIPT, STYLE] {
            let lower = text.to_lowercase();
            assert!(!lower.contains("</script") && !lower.contains("</style") && !lower.contains("<!--"));
        }
        for (name, (text, _)) in ["index.html", "app.js", "app.css"].map(|name| (name, file(name).unwrap())) {
            for found in text.match_indices("://").map(|(at, _)| &text[at.saturating_sub(5)..(at + 20).min(text.len())])
            {
                assert!(found.contains("://www.w3.org") || found.contains("://127.0"), "{name}: {found}");
            }
        }
        assert_eq!(file("../Cargo.toml"), None);
    }
}
