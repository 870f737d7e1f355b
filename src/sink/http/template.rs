//! Bodies that a template makes of entries.
//!
//! minijinja renders, without macros, includes and blocks. Fuel bounds its steps and the bytes that it makes, and a body has
//! at most 256 KiB. A template is tried when it is read, with entries of every type and with hostile names.
//!
//! # Decision: its place escapes a value for JSON, and one key for the reader
//!
//! Context: Every value in a message is somebody else's text: it may end a string of JSON, ping a channel, or pose as a link.
//! Decision: A value between quotes is put in as the inside of a string, and elsewhere as a JSON value: where it stands is known
//! while the body is written, so that no filter can be forgotten. What a chat would obey is taken out by the key `escape`. It has
//! no default, because one forgotten would ping a channel, and `unescaped` leaves it in for one value.
//! Cost: What captures text before its place is known, such as `{% filter %}`, is refused.

mod escape;
mod place;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};
use serde::de::IgnoredAny;
use serde_json::Value as Json;

use crate::core::model::{EntryType, Seq};
use crate::core::spelling::nearest;
use crate::core::wire::Header;
use crate::sink::Item;
use crate::sink::notify::{Incident, NAMED};
pub use escape::Escape;
use place::{BODY_BYTES, Pen, Sheet, Tag, with_lines};
use values::Fields;

/// The largest template, in bytes.
const SOURCE_BYTES: usize = 64 << 10;

/// Steps of one body, in instructions or in 64 bytes of what is made: about 13 MiB.
const FUEL: u64 = 200_000;

/// Levels of loops within loops.
const MOST_LEVELS: usize = 32;

/// Name of the template in the engine.
const NAME: &str = "body";

/// Tags of the engine that would take text past its escape.
const REFUSED_TAGS: [&str; 2] = ["filter", "autoescape"];

/// Filters and functions of the engine that would take text past its escape, or show more than the entry.
const REFUSED_FILTERS: [&str; 4] = ["safe", "escape", "e", "pprint"];

/// Golden entries of every type, one a line.
const SAMPLES: &str = include_str!("template/samples.jsonl");

/// A name that no cluster would take, for entries that are tried.
const HOSTILE: &str = r#"\"}],\\\u0000\n\u202e <!channel> <@U123> @everyone [a](https://x.example) *b*"#;

/// Source of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The key `body`.
    Text(String),
    /// The key `body_file`.
    File(PathBuf),
}

/// A template that was tried.
pub(super) struct Template {
    engine: Environment<'static>,
    pen: Pen,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("pen", &self.pen).finish_non_exhaustive()
    }
}

impl Source {
    /// Reads the text.
    ///
    /// # Errors
    /// A sentence, where it cannot be read or is too large.
    pub(super) fn text(&self) -> Result<Cow<'_, str>, String> {
        let text = match self {
            Self::Text(text) => Cow::Borrowed(text.as_str()),
            Self::File(path) => Cow::Owned(read_file(path)?),
        };
        if text.len() > SOURCE_BYTES {
            return Err(format!("{} bytes, and a template has at most {} KiB", text.len(), SOURCE_BYTES >> 10));
        }
        Ok(text)
    }
}

/// Reads a file, and no more of it than a template may have.
fn read_file(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let failed = |error: std::io::Error| format!("{:?}, which cannot be read: {error}", path.display().to_string());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(SOURCE_BYTES as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

impl Template {
    /// Reads a template for a body of JSON, or of text, and tries it.
    ///
    /// # Errors
    /// A sentence that begins with the line.
    pub(super) fn read(source: &str, json: bool, escape: Escape) -> Result<Self, String> {
        let (with_lines, tags) = with_lines(source);
        tags.iter().try_for_each(allowed)?;
        let pen = Pen::new(json);
        let mut engine = engine(&pen, escape);
        let text = if json { with_lines } else { source.to_owned() };
        engine.add_template_owned(NAME, text).map_err(|error| sentence(&error))?;
        known_filters(&engine, &tags)?;
        known_fields(&engine, source)?;
        let template = Self { engine, pen };
        for line in SAMPLES.lines() {
            for line in [line.to_owned(), line.replace("\"web\"", &format!("\"{HOSTILE}\""))] {
                let header = Header::parse(line.as_bytes()).map_err(|error| error.to_string())?;
                let (seq, op) = (Seq(header.seq), header.op);
                for incident in incidents(&header) {
                    let item = Item::new(seq, op, Bytes::from(line.clone().into_bytes())).about(incident);
                    template.body(&item).map_err(|error| for_type(&error, op))?;
                }
            }
        }
        Ok(template)
    }

    /// Makes the body for an entry; none where the template makes nothing of it.
    ///
    /// # Errors
    /// A sentence that begins with the line of the template. It never quotes the entry.
    pub(super) fn body(&self, item: &Item) -> Result<Option<Bytes>, String> {
        let entry = values::read(item)?;
        self.pen.turn();
        let template = self.engine.get_template(NAME).map_err(|error| sentence(&error))?;
        let rendered = template.render_captured_to(entry, self.pen.clone()).map(drop);
        let sheet = self.pen.turn();
        match rendered {
            Err(_) if sheet.full => Err(too_large(&sheet)),
            Err(error) => Err(sentence(&error)),
            Ok(()) if sheet.body.trim_ascii().is_empty() => Ok(None),
            Ok(()) if self.pen.json => is_json(&sheet).map(|()| Some(sheet.body.into())),
            Ok(()) => Ok(Some(sheet.body.into())),
        }
    }
}

/// What a message may be about: nothing, an incident, one that goes on, a digest.
fn incidents(entry: &Header<'_>) -> [Option<Incident>; 4] {
    let title = format!("{} {}: image changed", entry.kind, entry.name.as_deref().unwrap_or_default());
    let (key, rule) = ("0a53/image-changed/Deployment.apps/shop/web".to_owned(), "image-changed".to_owned());
    let log = "decklog show 1".to_owned();
    let (first, last, until) = (entry.seq, entry.seq, entry.time.to_string());
    let one = Incident { key, rule, title, count: 1, first, last, until, log, ..Incident::default() };
    let causes = [("image changed".to_owned(), 27)];
    let digest = Incident::digest(vec![one.clone(); NAMED], &causes, "0a53");
    let update = Incident { count: 12, reference: "1763720100.000100".to_owned(), ..one.clone() };
    [None, Some(one), Some(update), Some(digest)]
}

fn too_large(sheet: &Sheet) -> String {
    let text = format!("the body has more than {} KiB; shorten values with truncate(NUMBER)", BODY_BYTES >> 10);
    at(sheet.line_at(sheet.body.len()), &text)
}

fn is_json(sheet: &Sheet) -> Result<(), String> {
    let Err(error) = serde_json::from_slice::<IgnoredAny>(&sheet.body) else { return Ok(()) };
    let lines = sheet.body.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let line = sheet.line_at(before + error.column().saturating_sub(1));
    // The words are of serde_json, and quote nothing.
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or_default();
    Err(at(line, &format!("the body is not JSON here: {why}")))
}

/// A sentence about a line of the template.
fn at(line: Option<usize>, text: &str) -> String {
    line.map_or_else(|| text.to_owned(), |line| format!("line {line}: {text}"))
}

/// A sentence about what was tried.
fn for_type(error: &str, op: EntryType) -> String {
    format!("{error} (tried with an entry of type {})", op.as_str())
}

/// A sentence about an error of the engine. The details of some quote values.
fn sentence(error: &Error) -> String {
    // Of these the detail is about the template alone.
    const OF_THE_TEMPLATE: [ErrorKind; 6] = [
        ErrorKind::SyntaxError,
        ErrorKind::UnknownFilter,
        ErrorKind::UnknownFunction,
        ErrorKind::UnknownTest,
        ErrorKind::TooManyArguments,
        ErrorKind::MissingArgument,
    ];
    let kind = error.kind();
    let text = if kind == ErrorKind::OutOfFuel {
        "it takes too many steps, or makes too much text".to_owned()
    } else if kind == ErrorKind::InvalidOperation {
        let why = error.detail().filter(|detail| !detail.contains(['"', '\'']));
        why.map_or_else(|| "it does with a value what that cannot be used for".to_owned(), str::to_owned)
    } else if OF_THE_TEMPLATE.contains(&kind) {
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        format!("{kind}{detail}").replace(char::is_control, " ")
    } else {
        kind.to_string()
    };
    at(error.line(), &text)
}

fn allowed(tag: &Tag<'_>) -> Result<(), String> {
    let word = tag.text.split(|c: char| !is_part(c)).next().unwrap_or_default();
    if !tag.is_block {
        return Ok(());
    }
    if REFUSED_TAGS.contains(&word) {
        return Err(at(
            Some(tag.line),
            &format!("the tag {word} is not there; filters stand behind a value: {{{{ name | upper }}}}"),
        ));
    }
    if word == "set" && !tag.text.contains('=') {
        return Err(at(Some(tag.line), "a set without \"=\"; write {% set NAME = VALUE %}"));
    }
    Ok(())
}

/// Reports a filter that is not there: the engine itself would only where it runs.
fn known_filters(engine: &Environment<'_>, tags: &[Tag<'_>]) -> Result<(), String> {
    for tag in tags {
        for name in tag.filters() {
            let expression = engine.compile_expression_owned(format!("none | {name}"));
            let ran = expression.and_then(|expression| expression.eval(()));
            if ran.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter) {
                return Err(at(Some(tag.line), &format!("unknown filter {name}")));
            }
        }
    }
    Ok(())
}

/// Reports whether a character may be a part of a name.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reports a name that no entry has.
fn known_fields(engine: &Environment<'_>, source: &str) -> Result<(), String> {
    let fields = Fields::new();
    let template = engine.get_template(NAME).map_err(|error| sentence(&error))?;
    let mut wrong = Vec::new();
    for path in template.undeclared_variables(true) {
        let mut names = path.split('.');
        let (first, second) = (names.next().unwrap_or_default(), names.next());
        if engine.globals().any(|(name, _)| name == first) {
            continue;
        }
        let top = fields.below(None).unwrap_or_default();
        let (found, known, above) = match second.and_then(|second| Some((second, fields.below(Some(first))?))) {
            Some((second, members)) if top.contains(&first) => (second, members, format!("{first}.")),
            _ => (first, top, String::new()),
        };
        if !known.contains(&found) {
            let near = nearest(found, known).map(|near| format!(" (did you mean {above}{near}?)")).unwrap_or_default();
            wrong.push((line_of(source, found), format!("unknown field {above}{found}{near}")));
        }
    }
    wrong.sort();
    wrong.first().map_or(Ok(()), |(line, text)| Err(at(*line, text)))
}

/// Returns the first line with this name in a tag.
fn line_of(source: &str, name: &str) -> Option<usize> {
    let names = |line: &str| {
        line.match_indices(name).any(|(at, _)| {
            !line[..at].ends_with(is_part) && !line[at + name.len()..].starts_with(is_part) && line[..at].contains('{')
        })
    };
    source.lines().position(names).map(|at| at + 1)
}

fn engine(pen: &Pen, escape: Escape) -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    engine.set_undefined_behavior(UndefinedBehavior::Chainable);
    engine.set_fuel(Some(FUEL));
    engine.set_recursion_limit(MOST_LEVELS);
    REFUSED_FILTERS.iter().for_each(|name| engine.remove_filter(name));
    // An entry has a member of the second name.
    ["debug", "namespace"].iter().for_each(|name| engine.remove_global(name));
    engine.add_filter("unescaped", |text: String| Value::from_safe_string(text));
    engine.add_filter("truncate", truncate);
    engine.add_filter("urlencode", |text: Cow<'_, str>| {
        percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
    });
    engine.add_filter("milliseconds", |time: &str| moment(time).map(jiff::Timestamp::as_millisecond));
    engine.add_filter("seconds", |time: &str| moment(time).map(jiff::Timestamp::as_second));
    let pen = pen.clone();
    engine.set_formatter(move |out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value| {
        let in_string = pen.sheet().in_string;
        let text = match (pen.json, in_string) {
            (true, false) => whole(value, escape)?,
            (true, true) => {
                let quoted = Json::String(escaped(value, escape)?.into_owned()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            (false, _) => escaped(value, escape)?.into_owned(),
        };
        out.write_str(&text).map_err(|_| Error::new(ErrorKind::WriteFailure, "the body is too large"))
    });
    engine
}

/// The text of a value, escaped.
fn escaped(value: &Value, escape: Escape) -> Result<Cow<'_, str>, Error> {
    if matches!(value.kind(), ValueKind::Undefined | ValueKind::None) {
        return Ok(Cow::Borrowed(""));
    }
    match value.as_str() {
        Some(text) if value.is_safe() => Ok(Cow::Borrowed(text)),
        Some(text) => Ok(escape.apply(text)),
        None => Ok(Cow::Owned(escape.apply(&json(value)?.to_string()).into_owned())),
    }
}

/// A value as JSON, with every text in it escaped.
fn whole(value: &Value, escape: Escape) -> Result<String, Error> {
    let mut json = json(value)?;
    if !value.is_safe() {
        escape_all(&mut json, escape);
    }
    Ok(json.to_string())
}

fn json(value: &Value) -> Result<Json, Error> {
    serde_json::to_value(value).map_err(|_| Error::new(ErrorKind::BadSerialization, "a value that JSON does not have"))
}

fn escape_all(json: &mut Json, escape: Escape) {
    match json {
        Json::String(text) => *text = escape.apply(text).into_owned(),
        Json::Array(list) => list.iter_mut().for_each(|json| escape_all(json, escape)),
        Json::Object(members) => {
            let old = std::mem::take(members);
            members.extend(old.into_iter().map(|(name, mut json)| {
                escape_all(&mut json, escape);
                (escape.apply(&name).into_owned(), json)
            }));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Cuts a text to so many characters, the last of which says that there are more.
fn truncate(text: Cow<'_, str>, most: usize, _: Kwargs) -> String {
    if text.chars().count() <= most {
        return text.into_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Reads a time of an entry.
fn moment(time: &str) -> Result<jiff::Timestamp, Error> {
    time.parse()
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "a text that is no time, such as that of an entry"))
}
