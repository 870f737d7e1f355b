//! What somebody made to be slow to read is read in time that grows with its length.

use std::time::Duration;

use decklog::app::config::{Config, Files};
use decklog::core::change::redact::Redactor;
use decklog::core::change::redact::{RedactMode, RedactRule, Settings as Redact};
use decklog::core::change::{self, Pattern};
use decklog::watch::decode;
use decklog::watch::frame::{Item, Items, Lines, Oversize};

use crate::json::pods;

/// A mebibyte where there is time for it; what is quadratic is found at a quarter of that as well.
const LENGTH: usize = if cfg!(debug_assertions) { 1 << 18 } else { 1 << 20 };

/// Processor time of this thread: that of the machine's other work does not count.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Bounds a work that takes a fraction of a second if it is linear, also without optimisation, and minutes if it reads all of
/// its input again for each part.
pub(crate) fn bounded(what: &str, work: impl FnOnce()) {
    let took = time_of(work);
    assert!(took < Duration::from_secs(8), "{what} took {took:?}");
}

fn time_of(work: impl FnOnce()) -> Duration {
    let begun = spent();
    work();
    spent() - begun
}

fn filled(unit: &str) -> String {
    unit.repeat(LENGTH / unit.len())
}

/// Texts that are hard to read, by name.
fn hostile() -> Vec<(&'static str, String)> {
    let numbered = |make: fn(usize) -> String| {
        let mut text = String::new();
        for number in 0.. {
            text.push_str(&make(number));
            if text.len() >= LENGTH {
                break;
            }
        }
        text.pop();
        text
    };
    let half = LENGTH / 2;
    let mut texts = text_in_text();
    texts.extend([
        ("deep lists", format!("{}{}", "[".repeat(half), "]".repeat(half))),
        ("deep objects", format!("{}1{}", "{\"a\":".repeat(LENGTH / 6), "}".repeat(LENGTH / 6))),
        ("deep to 9,000", format!("{}1{}", "{\"a\":[".repeat(9000), "]}".repeat(9000))),
        ("equal names", format!("{{{}}}", numbered(|n| format!("\"a\":{n},")))),
        ("many names", format!("{{{}}}", numbered(|n| format!("\"n{n}\":{n},")))),
        ("many elements", format!("[{}]", numbered(|n| format!("{n},")))),
        ("many named elements", format!("[{}]", numbered(|n| format!("{{\"name\":\"n{n}\"}},")))),
        ("many kinds", format!("[{}]", numbered(|_| "{\"kind\":\"Secret\",\"data\":{\"a\":1}},".to_owned()))),
        ("equal kinds", format!("{{{}}}", numbered(|_| "\"kind\":\"Secret\",".to_owned()))),
        (
            "deep secrets",
            format!("{}1{}", "{\"kind\":\"Secret\",\"data\":{},\"a\":".repeat(LENGTH / 32), "}".repeat(LENGTH / 32)),
        ),
        ("beginnings of tokens", format!("{{\"a\":\"{}\"}}", filled("eyJ"))),
        ("beginnings of tokens with dots", format!("{{\"a\":\"{}\"}}", filled("eyJ.eyJ."))),
        ("many tokens", format!("{{\"a\":\"{}\"}}", filled("eyJhbGciOjF9.eyJhIjoxfQ.c2ln "))),
        ("escapes", format!("{{\"a\":\"{}\"}}", filled("\\u0065\\\\"))),
        ("backslashes", format!("{{\"a\":\"{}\"}}", filled("\\\\"))),
        ("stars", format!("{{\"spec\":{{{}}}}}", numbered(|n| format!("\"{}{n}\":1,", "a".repeat(60))))),
        ("one long name", format!("{{\"{}\":1}}", filled("a/~"))),
        ("one long number", format!("{{\"a\":{}}}", filled("7"))),
        ("white space", format!("{{\"a\":{}1}}", filled("\n"))),
        ("a long name with much below", format!("{{\"{}\":[{}]}}", "n".repeat(half), "1,".repeat(half / 2) + "1")),
    ]);
    texts
}

fn text_in_text() -> Vec<(&'static str, String)> {
    // Each level doubles the backslashes of the one inside.
    let mut nested = "{\"kind\":\"Secret\",\"data\":{\"a\":\"x\"}}".to_owned();
    while nested.len() < LENGTH / 2 {
        nested = serde_json::json!({ "x": nested }).to_string();
    }
    vec![("texts in texts", nested)]
}

#[test]
fn hostile_objects_cost_no_more_than_their_length() {
    let rule = |path: &str| RedactRule {
        resources: vec!["*".into()],
        paths: vec![path.parse().unwrap()],
        mode: RedactMode::Mask,
    };
    let rules =
        vec![rule("/**/a*a*a*a*a*a*b"), rule("/**/a/**/b/**/c/**/d"), rule("/**/*x*y*z"), rule("/spec/**/password")];
    let redactor = Redactor::new(&Redact { rules, ..Redact::default() }, [1; 32]).unwrap();
    let ignore = ["/**/a/**/a/**/a/**/b", "/*a*a*a*b/**/c"].map(|text| Pattern::parse(text).unwrap());
    for (name, text) in hostile() {
        let object =
            format!("{{\"metadata\":{{\"name\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"1\"}},\"spec\":{text}}}");
        let line = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        bounded(&format!("{name}: a line"), || {
            let mut lines = Lines::new(32 << 20);
            // In small pieces, as a slow server would send it.
            for part in line.as_bytes().chunks(1000) {
                lines.push(bytes::Bytes::copy_from_slice(part));
                while let Ok(Some(line)) = lines.take() {
                    drop(line);
                }
            }
        });
        bounded(&format!("{name}: an event"), || drop(decode::line(line.trim_end().as_bytes())));
        bounded(&format!("{name}: a list"), || {
            let list = format!("{{\"items\":[{object}]}}");
            let mut items = Items::new(32 << 20);
            for part in list.as_bytes().chunks(1000) {
                let read = |item: Item<'_>| {
                    let (Item::Whole(item) | Item::Outline(item)) = item;
                    decode::item(&pods(), item).map(drop).map_err(|_| Oversize)
                };
                items.push(part, read).unwrap_or_default();
            }
        });
        bounded(&format!("{name}: one line"), || drop(decklog::core::json::one_line(object.clone().into_bytes())));
        bounded(&format!("{name}: redaction"), || drop(redactor.apply(&pods(), "u", object.as_bytes())));
        let hidden = redactor.apply(&pods(), "u", object.as_bytes());
        let Ok(hidden) = hidden else { continue };
        bounded(&format!("{name}: redaction of the same again"), || drop(redactor.again(&pods(), "u", hidden.clone())));
        let other = object.replacen("\"resourceVersion\":\"1\"", "\"resourceVersion\":\"2\"", 1).replace('1', "2");
        for (old, new) in
            [(&object, &other), (&other, &object), (&object, &"{}".to_owned()), (&"{}".to_owned(), &object)]
        {
            bounded(&format!("{name}: a comparison"), || {
                if let Ok(change) = change::compare(old.as_bytes(), new.as_bytes(), &[], &[]) {
                    // Nor is what is told of it without a bound.
                    assert!(change.json.len() < 16 * LENGTH, "{name}: a patch of {} bytes", change.json.len());
                    let touched: usize = change.touched.iter().map(String::len).sum();
                    assert!(touched < 16 * LENGTH, "{name}: {touched} bytes of pointers");
                    std::hint::black_box(change::matches_ignore(&ignore, &change.touched));
                }
            });
        }
    }
}

/// Texts of configurations that are wrong, by name.
fn wrong_configurations(length: usize) -> Vec<(&'static str, String)> {
    let lines = |line: &str| line.repeat((length - 100) / line.len());
    vec![
        ("deep", format!("a = {}", "[".repeat(length - 100))),
        ("deep tables", format!("{} = 1", "a.".repeat(length / 4) + "a")),
        ("many mistakes", lines("[[sink]]\nnam = 1\n")),
        ("many unknown", (0..length / 20).map(|n| format!("unknown{n} = 1\n")).collect()),
        ("many watches", lines("[[watch]]\nresources = [\"pods\"]\n")),
        ("long text", format!("[[watch]]\nresources = [\"{}\"]\n", "a".repeat(length - 200))),
    ]
}

#[test]
fn a_hostile_configuration_is_refused_in_time() {
    const LENGTH: usize = 1 << 15;
    let refuse = |text: &str| {
        let problems = Config::parse(text, "c", &[], Files::Ignore).unwrap_err();
        drop(problems.to_string());
    };
    for ((name, short), (_, long)) in wrong_configurations(LENGTH / 4).into_iter().zip(wrong_configurations(LENGTH)) {
        let (short, long) = (time_of(|| refuse(&short)), time_of(|| refuse(&long)));
        println!("{name}: {short:?}, and of four times the length {long:?}");
        // Linear is 4 times, quadratic 16 times.
        assert!(
            long < short * 8 + Duration::from_millis(200),
            "{name}: {short:?}, and of four times the length {long:?}"
        );
    }
}
