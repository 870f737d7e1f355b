//! Time of a change in the cluster, from the timestamps in the object that the change moved.

use jiff::{SignedDuration, Timestamp};

use crate::core::json::pointer::unescape;
use crate::core::json::scan::Cursor;
use crate::core::json::tree::{Id, Kind, Tree};

/// One step of the way to a stamp.
enum At {
    Member(&'static str),
    Element,
    /// A member `last…Time`.
    Last,
}

const DELETION: &[At] = &[At::Member("metadata"), At::Member("deletionTimestamp")];

/// Pointers of timestamps.
const STAMPS: [&[At]; 4] = [
    &[At::Member("metadata"), At::Member("creationTimestamp")],
    DELETION,
    &[At::Member("metadata"), At::Member("managedFields"), At::Element, At::Member("time")],
    &[At::Member("status"), At::Member("conditions"), At::Element, At::Last],
];

/// The newest stamp of an object, to the second. The object has to be JSON.
#[must_use]
pub fn newest(object: &[u8]) -> Option<Timestamp> {
    picked(object).unwrap_or_else(|| read_newest(object))
}

fn picked(object: &[u8]) -> Option<Option<Timestamp>> {
    let mut newest = None;
    pick(&mut Cursor::new(object), STAMPS.map(Some), &mut newest)?;
    Some(newest)
}

/// Reads the whole object.
fn read_newest(object: &[u8]) -> Option<Timestamp> {
    let mut object = Tree::parse_bounded(object).ok()?;
    of(&mut object, [""])
}

/// What is left of the ways to stamps behind a value; none for a way that does not lead through it.
type Ways = [Option<&'static [At]>; STAMPS.len()];

/// Picks the newest stamp out of a value in one pass that reads nothing else. Returns nothing where that does not do: where a name or a stamp
/// is escaped, where a member of a way comes twice, and where the object is being deleted, so that a stamp takes two values.
fn pick(value: &mut Cursor<'_>, ways: Ways, newest: &mut Option<Timestamp>) -> Option<()> {
    match ways.iter().flatten().find_map(|way| way.first()) {
        None if ways.iter().all(Option::is_none) => value.skip().map(drop),
        None => {
            *newest = (*newest).max(stamp(value.skip()?)?);
            Some(())
        }
        Some(At::Element) => value.array(|element| pick(element, ways.map(|way| way?.get(1..)), newest)),
        Some(At::Member(_) | At::Last) => {
            let mut seen: Vec<&[u8]> = Vec::new();
            value.object(|member, name| {
                let name = (!name.contains(&b'\\')).then_some(name)?;
                let fits = |step: &At| match step {
                    At::Member(member) => name == member.as_bytes(),
                    At::Last => std::str::from_utf8(name).is_ok_and(is_last),
                    At::Element => false,
                };
                let below = ways.map(|way| way?.split_first().filter(|(step, _)| fits(step)).map(|(_, rest)| rest));
                if below.iter().any(Option::is_some) {
                    let is_new = name != b"deletionTimestamp" && !seen.contains(&name);
                    is_new.then(|| seen.push(name))?;
                }
                pick(member, below, newest)
            })
        }
    }
}

/// The stamp that a value is, to the second, if it is one; nothing where that is escaped.
fn stamp(value: &[u8]) -> Option<Option<Timestamp>> {
    let text = value.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let Some(text) = text else { return Some(None) };
    (!text.contains(&b'\\')).then_some(())?;
    let stamp = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Timestamp>().ok());
    Some(stamp.and_then(|stamp| Timestamp::from_second(stamp.as_second()).ok()))
}

/// The newest stamp of an object that one of these JSON pointers leads to, or to what holds it.
pub(super) fn of<'p>(object: &mut Tree<'_>, set: impl IntoIterator<Item = &'p str>) -> Option<Timestamp> {
    let mut newest = None;
    for pointer in set {
        for way in STAMPS {
            if let Some(rest) = rest(way, pointer)
                && let Some(at) = object.find(pointer)
            {
                look(object, at, rest, &mut newest, std::ptr::eq(way, DELETION));
            }
        }
    }
    newest
}

/// Reports whether a pointer leads to a timestamp, or to a container of one.
pub(super) fn may_be_stamped(pointer: &str) -> bool {
    STAMPS.iter().any(|way| rest(way, pointer).is_some())
}

/// Returns the rest of the path behind a pointer; none if the pointer leads elsewhere.
fn rest(way: &'static [At], pointer: &str) -> Option<&'static [At]> {
    let mut way = way.iter();
    for segment in pointer.split('/').skip(1) {
        let fits = match way.next()? {
            At::Member(name) => segment == *name,
            At::Element => true,
            At::Last => unescape(segment).is_some_and(|name| is_last(&name)),
        };
        if !fits {
            return None;
        }
    }
    Some(way.as_slice())
}

fn look(object: &mut Tree<'_>, at: Id, way: &[At], newest: &mut Option<Timestamp>, deletion: bool) {
    let Some((step, way)) = way.split_first() else {
        let stamp = (object.kind(at) == Kind::String).then(|| object.string(at).parse::<Timestamp>().ok()).flatten();
        let stamp = stamp.map(|stamp| if deletion { asked(object, stamp) } else { stamp });
        let second = stamp.and_then(|stamp| Timestamp::from_second(stamp.as_second()).ok());
        *newest = (*newest).max(second);
        return;
    };
    object.read(at);
    let below: Vec<Id> = match (step, object.kind(at)) {
        (At::Member(name), Kind::Object) => object.member(at, name).into_iter().collect(),
        (At::Last, Kind::Object) => {
            object.members(at).filter(|&(name, _)| is_last(&object.string(name))).map(|(_, value)| value).collect()
        }
        (At::Element, Kind::Array) => object.elements(at).collect(),
        _ => Vec::new(),
    };
    for id in below {
        look(object, id, way, newest, deletion);
    }
}

/// `lastTransitionTime`, `lastHeartbeatTime`, …: others, such as when something expires, may be of the future.
fn is_last(name: &str) -> bool {
    name.starts_with("last") && name.ends_with("Time")
}

/// Returns the time of the deletion request: the timestamp is the end of its grace period.
fn asked(object: &mut Tree<'_>, ends: Timestamp) -> Timestamp {
    let grace = object.find("/metadata/deletionGracePeriodSeconds").and_then(|id| object.raw(id).parse().ok());
    ends.checked_sub(SignedDuration::from_secs(grace.unwrap_or(0))).unwrap_or(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"creationTimestamp":"2026-11-22T10:00:00Z","deletionTimestamp":"2026-11-22T10:05:30Z","deletionGracePeriodSeconds":30,
        "labels":{"time":"2030-01-01T00:00:00Z"},
        "managedFields":[{"manager":"a","time":"2026-11-22T10:00:00Z"},{"manager":"b","time":"2026-11-22T10:04:00Z"},{"manager":"c"}]},
        "status":{"startTime":"2031-01-01T00:00:00Z","conditions":[{"type":"Ready","lastTransitionTime":"2026-11-22T10:06:00.5Z","lastProbeTime":null,"expiryTime":"2033-01-01T00:00:00Z"},{"type":"x","message":"2032-01-01T00:00:00Z"}]}}"#;

    #[test]
    fn the_newest_stamp_that_a_change_moved_says_when_it_happened() {
        let at = |set: &[&str]| {
            let found = of(&mut Tree::parse_shallow(POD.as_bytes()).unwrap(), set.iter().copied());
            found.map(|time| time.to_string()).unwrap_or_default()
        };
        assert_eq!(newest(POD.as_bytes()).unwrap().to_string(), "2026-11-22T10:06:00Z");
        for (set, expected) in [
            (&["/metadata/creationTimestamp"][..], "2026-11-22T10:00:00Z"),
            // Its end of grace, less the grace.
            (&["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds"], "2026-11-22T10:05:00Z"),
            (&["/metadata/managedFields/0/time", "/spec/replicas"], "2026-11-22T10:00:00Z"),
            (&["/metadata/managedFields/1"], "2026-11-22T10:04:00Z"),
            (&["/metadata/managedFields/0", "/metadata/managedFields"], "2026-11-22T10:04:00Z"),
            (&["/status/conditions/0/lastTransitionTime"], "2026-11-22T10:06:00Z"),
            (&["/status/conditions/0"], "2026-11-22T10:06:00Z"),
            (&["/status"], "2026-11-22T10:06:00Z"),
            (&["/status/startTime", "/status/conditions/1/message", "/metadata/labels/time", "/metadata/labels"], ""),
            (&["/status/conditions/0/lastProbeTime", "/metadata/managedFields/2", "/status/conditions/7"], ""),
            (&[], ""),
        ] {
            assert_eq!(at(set), expected, "{set:?}");
        }
        assert_eq!(newest(b"{}"), None);
        assert_eq!(newest(b"{"), None);
        assert_eq!(newest(br#"{"metadata":{"managedFields":[{"time":"soon"}]}}"#), None);
    }

    /// Objects with names and stamps in every place, escaped and doubled ones too: what is picked out is what a reading of all finds.
    #[test]
    fn what_is_picked_out_is_what_is_read() {
        const NAMES: [&str; 13] = [
            "metadata",
            "status",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "time",
            "conditions",
            "lastTransitionTime",
            "lastTime",
            "spec",
            "me\\u0074adata",
            "\\u0074ime",
        ];
        fn value(random: &mut fastrand::Rng, depth: usize, out: &mut String) {
            let space = |random: &mut fastrand::Rng| if random.u8(..8) == 0 { " \n" } else { "" };
            let kinds = if depth == 0 {
                0..5
            } else if depth > 2 {
                7..12
            } else {
                0..12
            };
            match random.u8(kinds) {
                0 => out.push_str("30"),
                1 => out.push_str(["null", "true ", "\"soon\"", "\"a]}\\\"\""][random.usize(..4)]),
                2 => out.push_str("\"2026-11-22T10:00:0\\u0031Z\""),
                3 | 4 => out.push_str(&format!("\"2026-11-22T10:{:02}:00.{}Z\"", random.u8(..60), random.u8(..10))),
                5..8 => {
                    out.push('[');
                    for index in 0..random.usize(..3) {
                        out.push_str(if index == 0 { "" } else { "," });
                        out.push_str(space(random));
                        value(random, depth - 1, out);
                    }
                    out.push_str(space(random));
                    out.push(']');
                }
                _ => {
                    out.push('{');
                    for index in 0..random.usize(..6) {
                        let likely = [5..9, 6..10, 2..8, 0..2][depth.clamp(1, 4) - 1].clone();
                        let among = if random.u8(..4) == 0 { 0..NAMES.len() } else { likely };
                        let name = NAMES[random.usize(among)];
                        out.push_str(if index == 0 { "" } else { "," });
                        out.push_str(&format!("{}\"{name}\"{}:{}", space(random), space(random), space(random)));
                        value(random, depth - 1, out);
                    }
                    out.push_str(space(random));
                    out.push('}');
                }
            }
        }
        let (mut picked, mut stamped) = (0, 0);
        for seed in 0..20_000 {
            let mut text = String::new();
            value(&mut fastrand::Rng::with_seed(seed), 4, &mut text);
            let read = read_newest(text.as_bytes());
            assert_eq!(newest(text.as_bytes()), read, "{text}");
            let is_picked = super::picked(text.as_bytes()).is_some();
            picked += usize::from(is_picked);
            stamped += usize::from(is_picked && read.is_some());
        }
        assert!(picked > 4_000 && stamped > 40, "{picked} are picked, of which {stamped} have a stamp");
    }
}
