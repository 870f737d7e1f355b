//! The object of so many bytes for which most is built: how much memory a comparison, a redaction and a filter take at once
//! depends on the object's shape far more than on its length. A search climbs from shape to shape, and the memory that the
//! worst one takes is bounded.

use decklog::core::change;
use decklog::core::change::redact::{Redactor, Settings as Redact};
use decklog::core::filter::Filter;
use decklog::core::model::Redacted;
use fastrand::Rng;

use crate::json::pods;

/// Bytes of an object: twice what etcd takes by default. At that size a step without its bound holds more than [`MOST`], even where
/// each value has a name.
const LENGTH: usize = 3 << 20;

/// Bytes that one step may hold at once for a change of such an object: a quarter of the 256 MiB that decklog promises.
const MOST: u64 = 64 << 20;

/// What a part of an object repeats: an element of a list, or a member of an object, with its number.
const UNITS: &[fn(usize, u8) -> String] = &[
    |_, turn| format!("{}", turn % 10),
    |n, turn| format!("{}", n + usize::from(turn)),
    |n, turn| format!("\"e{n}-{turn}\""),
    |_, turn| if turn.is_multiple_of(2) { "[]".into() } else { "{}".into() },
    |_, turn| format!("[[{turn}]]"),
    |n, turn| format!("{{\"name\":\"n{n}\",\"v\":{turn}}}"),
    |n, turn| format!("{{\"k{n}\":{turn}}}"),
    |n, turn| format!("{{\"name\":\"n{n}\",\"value\":\"{}\"}}", "x\\n".repeat(usize::from(turn) % 40)),
    |n, turn| format!("{{\"a\":{{\"b\":{{\"c\":{{\"d{turn}\":{n}}}}}}}}}"),
    |_, turn| format!("\"{}\"", "a/~1".repeat(usize::from(turn) * 8 + 1)),
    |n, _| format!("{{\"kind\":\"Secret\",\"data\":{{\"p{n}\":\"eA==\"}}}}"),
    |_, _| "\"eyJhbGciOjF9.eyJhIjoxfQ.c2ln\"".into(),
];

/// How the second version differs from the first.
const CHANGES: u8 = 6;

#[derive(Clone, Debug)]
struct Part {
    unit: usize,
    /// The values of the part are members of an object, with names of their own, or elements of a list.
    members: bool,
    /// Its share of the object, of the sum of all.
    share: usize,
    change: u8,
    turn: u8,
}

#[derive(Clone, Debug)]
struct Shape(Vec<Part>);

impl Part {
    fn any(dice: &mut Rng) -> Self {
        Self {
            unit: dice.usize(..UNITS.len()),
            members: dice.bool(),
            share: dice.usize(1..8),
            change: dice.u8(..CHANGES),
            turn: dice.u8(..8),
        }
    }

    fn text(&self, bytes: usize, second: bool) -> String {
        let (open, close) = if self.members { ('{', '}') } else { ('[', ']') };
        let mut text = String::with_capacity(bytes + 64);
        text.push(open);
        let change = if second { self.change } else { 0 };
        let (mut n, mut first) = (usize::from(change == 1), true);
        while text.len() < bytes {
            let turn = match change {
                2 => self.turn + 1,
                3 if n % 3 == 0 => self.turn + 1,
                4 if n == 0 => self.turn + 1,
                _ => self.turn,
            };
            if !first {
                text.push(',');
            }
            first = false;
            // Names that all differ from those before.
            let name = if change == 5 { format!("\"r{n}\":") } else { format!("\"m{n}\":") };
            if self.members {
                text.push_str(&name);
            }
            text.push_str(&UNITS[self.unit](n, turn));
            n += 1;
        }
        text.push(close);
        text
    }
}

impl Shape {
    fn versions(&self) -> [String; 2] {
        let whole: usize = self.0.iter().map(|part| part.share).sum();
        [false, true].map(|second| {
            let parts = self.0.iter().enumerate().map(|(at, part)| {
                format!("\"p{at}\":{}", part.text(LENGTH * part.share / whole, second))
            });
            let (version, parts) = (1 + u8::from(second), parts.collect::<Vec<_>>().join(","));
            format!(
                "{{\"kind\":\"Wide\",\"metadata\":{{\"name\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"{version}\"}},\"spec\":{{{parts}}}}}"
            )
        })
    }

    fn neighbour(&self, dice: &mut Rng) -> Self {
        let mut parts = self.0.clone();
        match dice.u8(..4) {
            0 if parts.len() < 4 => parts.push(Part::any(dice)),
            1 if parts.len() > 1 => drop(parts.remove(dice.usize(..parts.len()))),
            2 => {
                let at = dice.usize(..parts.len());
                parts[at] = Part::any(dice);
            }
            _ => {
                let part = &mut parts[dice.usize(..self.0.len())];
                (part.change, part.turn, part.share) = (dice.u8(..CHANGES), dice.u8(..8), dice.usize(1..8));
            }
        }
        Self(parts)
    }
}

/// The most bytes that one of the steps held at once, and which.
fn built(redactor: &Redactor, filter: &Filter, [old, new]: &[String; 2]) -> (u64, &'static str) {
    let held = |work: &mut dyn FnMut()| allocation_counter::measure(work).bytes_max;
    let line = format!("{{\"type\":\"MODIFIED\",\"object\":{new}}}");
    let mut redacted: Option<Redacted> = None;
    let steps = [
        (held(&mut || drop(change::compare(old.as_bytes(), new.as_bytes(), &[], &[]))), "the comparison"),
        (held(&mut || redacted = redactor.apply(&pods(), "u", new.as_bytes()).ok()), "the redaction"),
        (held(&mut || drop(filter.matches(line.as_bytes()))), "the filter"),
    ];
    assert!(redacted.is_some(), "the redaction of a right object");
    steps.into_iter().max().unwrap()
}

/// Searches for the object of [`LENGTH`] bytes for which a step holds most, and bounds that.
#[test]
fn the_object_that_builds_most_is_within_its_bound() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("DECKLOG_FUZZ_SEED").unwrap_or(1);
    let runs = number("DECKLOG_FUZZ_RUNS").unwrap_or(18 * number("DECKLOG_FUZZ_TIMES").unwrap_or(1));
    let mut dice = Rng::with_seed(seed);
    let redactor = Redactor::new(&Redact::default(), [1; 32]).unwrap();
    let filter = Filter::compile("has(object.spec.p0) && object.spec.p0.exists(x, x == 'canary')").unwrap();
    // One shape for each unit as a list, and then the neighbours of the worst.
    let first = |unit| Shape(vec![Part { unit, members: false, share: 1, change: 1, turn: 1 }]);
    let mut worst: Option<(u64, &str, Shape)> = None;
    for run in 0..runs {
        let shape = match (usize::try_from(run).ok().filter(|run| *run < UNITS.len()), &worst) {
            (None, Some((_, _, shape))) => shape.neighbour(&mut dice),
            (unit, _) => first(unit.unwrap_or(0)),
        };
        let (bytes, step) = built(&redactor, &filter, &shape.versions());
        assert!(bytes <= MOST, "seed {seed}, run {run}: {step} held {bytes} bytes for {shape:?}");
        if worst.as_ref().is_none_or(|(most, ..)| bytes > *most) {
            worst = Some((bytes, step, shape));
        }
    }
    let (bytes, step, shape) = worst.unwrap();
    println!("DECKLOG_FUZZ_SEED={seed} DECKLOG_FUZZ_RUNS={runs}: {step} held {bytes} bytes for {shape:?}");
}
