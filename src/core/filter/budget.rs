//! Budget of an evaluation: steps, and bytes of the values that it builds.
//!
//! The interpreter knows no bounds, so the expression itself counts: [`meter`] puts calls of functions that
//! count into its tree, once, when it is compiled. Each turn of a loop takes steps, by the size of the loop's body and of the
//! element that the interpreter copies for it. What reads whole values in a loop takes steps by their size. What makes values that
//! grow (sums, literals, copies, what `map` and `filter` append) takes bytes, before it makes them. What the entry itself is made to
//! takes bytes as well. An expression without loops and copies has next to no such calls.
//!
//! The functions of an environment are plain function pointers, so what is left is kept for each thread.

mod metering;

use std::cell::{Cell, RefCell};
use std::fmt;

use cel::common::ast::operators;
use cel::common::functions::Function;
use cel::common::types::{
    CelBool, CelBytes, CelInt, CelList, CelMap, CelMapKey, CelOptional, CelString, DYN_TYPE, INT_TYPE, Kind,
    STRING_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::Regex;

pub(super) use metering::meter;

/// Steps of one evaluation: a second of a processor at most, and some times what a filter takes that loops over everything in the
/// largest object that etcd keeps.
pub const MOST_STEPS: u64 = 2_000_000;

/// Bytes of the values of one evaluation: the largest object that etcd keeps, as values, and what a filter copies of it with `.?`.
pub const MOST_BYTES: u64 = 32 << 20;

/// Bytes of a value in its box, without what it holds.
pub(super) const VALUE: u64 = 32;
/// Bytes of a place in a list.
pub(super) const ELEMENT: u64 = 24;
/// Bytes of a key and a place in a map, without the text of the key.
pub(super) const MEMBER: u64 = 96;

/// Bytes that are compared or copied in one step.
const BYTES_A_STEP: u64 = 128;
/// Nodes of an expression that are evaluated in one step.
const NODES_A_STEP: u64 = 4;

/// Regular expressions that are kept while an expression is evaluated.
const MOST_PATTERNS: usize = 8;
/// Steps that it takes to compile a regular expression.
const PATTERN: u64 = 2_000;
/// … for each byte of it.
const PATTERN_BYTE: u64 = 16;
/// … and where it counts (`\w{100}`), which multiplies what it is compiled to.
const PATTERN_COUNTS: u64 = 100_000;
/// In a step a regular expression of so many bytes is tried at a byte of a text, or one of a byte at so many.
const TRIED_A_STEP: u64 = 256;
/// … and one that counts is as long as so many that do not.
const COUNTS: u64 = 16;

/// Cost of an evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps, of [`MOST_STEPS`].
    pub steps: u64,
    /// Bytes of values, of [`MOST_BYTES`].
    pub bytes: u64,
}

/// Bound that an evaluation has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Steps,
    Bytes,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps => write!(f, "the expression takes more than {MOST_STEPS} steps, so it must loop over less"),
            Self::Bytes => write!(
                f,
                "the expression needs values of more than {} MiB, so it must name less of the object or make less of it",
                MOST_BYTES >> 20
            ),
        }
    }
}

/// Remaining budget of an evaluation. Once one of the two is spent, the other is empty too.
struct Left {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    spent: Cell<Option<Spent>>,
    /// The node of the loop that took steps last.
    place: Cell<u64>,
}

impl Left {
    const fn full() -> Self {
        Self { steps: Cell::new(MOST_STEPS), bytes: Cell::new(MOST_BYTES), spent: Cell::new(None), place: Cell::new(0) }
    }

    fn spend(&self, what: Spent) {
        if self.spent.get().is_none() {
            self.spent.set(Some(what));
        }
        self.steps.set(0);
        self.bytes.set(0);
    }
}

thread_local! {
    static LEFT: Left = const { Left::full() };
    static PATTERNS: RefCell<Vec<(String, Option<Regex>)>> = const { RefCell::new(Vec::new()) };
}

/// Begins an evaluation on this thread.
pub(super) fn begin() {
    LEFT.with(|left| {
        left.steps.set(MOST_STEPS);
        left.bytes.set(MOST_BYTES);
        left.spent.set(None);
        left.place.set(0);
    });
    PATTERNS.with_borrow_mut(Vec::clear);
}

/// Returns the bound that the evaluation on this thread has exceeded, and the node of the loop in which it did.
pub(super) fn spent() -> Option<(Spent, u64)> {
    LEFT.with(|left| left.spent.get().map(|spent| (spent, left.place.get())))
}

/// Returns the cost of the evaluation on this thread.
pub(super) fn cost() -> Cost {
    Cost { steps: MOST_STEPS - steps_left(), bytes: MOST_BYTES - bytes_left() }
}

fn steps_left() -> u64 {
    LEFT.with(|left| left.steps.get())
}

fn bytes_left() -> u64 {
    LEFT.with(|left| left.bytes.get())
}

/// Takes steps, at least one, and returns whether there were as many.
fn take_steps(steps: u64) -> bool {
    LEFT.with(|left| match left.steps.get().checked_sub(steps) {
        Some(rest) => {
            left.steps.set(rest);
            true
        }
        None => {
            left.spend(Spent::Steps);
            false
        }
    })
}

/// Takes bytes, at least one, and returns whether there were as many.
pub(super) fn take_bytes(bytes: u64) -> bool {
    LEFT.with(|left| match left.bytes.get().checked_sub(bytes) {
        Some(rest) => {
            left.bytes.set(rest);
            true
        }
        None => {
            left.spend(Spent::Bytes);
            false
        }
    })
}

fn spent_error() -> ExecutionError {
    ExecutionError::function_error("@budget", "spent")
}

/// The bytes of a value with everything in it. Stops counting beyond `most`.
fn deep(value: &dyn Val, most: u64) -> u64 {
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        let mut bytes = VALUE;
        for element in list.inner() {
            if bytes > most {
                break;
            }
            bytes += ELEMENT + deep(element.as_ref(), most - bytes);
        }
        return bytes;
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let mut bytes = 2 * VALUE;
        for (key, value) in map.inner() {
            if bytes > most {
                break;
            }
            let key = if let CelMapKey::String(key) = key { key.inner().len() as u64 } else { 0 };
            bytes += MEMBER + key + deep(value.as_ref(), most - bytes);
        }
        return bytes;
    }
    match value.downcast_ref::<CelOptional<'_>>().and_then(CelOptional::option) {
        Some(inner) => VALUE + deep(inner, most),
        None => VALUE + length(value),
    }
}

/// The bytes of a text; of anything else, none.
fn length(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len() as u64
    } else {
        value.downcast_ref::<CelBytes<'_>>().map_or(0, |bytes| bytes.inner().len() as u64)
    }
}

/// The steps that it takes to go through a value.
fn steps_through(value: &dyn Val) -> u64 {
    deep(value, steps_left().saturating_mul(BYTES_A_STEP)) / BYTES_A_STEP
}

/// Charges one turn of a loop: `(element, nodes of the body, node of the loop)`.
fn take_turn(args: &[CowVal<'_, '_>]) -> bool {
    let number = |at: usize| {
        let number = args.get(at).and_then(|arg| arg.downcast_ref::<CelInt>());
        number.map_or(0, |number| number.inner().unsigned_abs())
    };
    LEFT.with(|left| {
        if left.spent.get().is_none() {
            left.place.set(number(2));
        }
    });
    take_steps(1 + number(1) / NODES_A_STEP + args.first().map_or(0, |element| steps_through(element.as_ref())))
}

/// Reports whether steps are left for a turn: `all` and `exists` continue after a turn that fails, and end after one that
/// decides.
fn left<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(CelBool::from(take_turn(&args))))
}

/// True, or an error where there are no steps left for a turn: the other loops end where one fails.
fn step<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    if take_turn(&args) { Ok(CowVal::owned(CelBool::from(true))) } else { Err(spent_error()) }
}

fn first<'b, 'v>(args: Vec<CowVal<'b, 'v>>, is_left: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    if is_left { args.into_iter().next().ok_or_else(spent_error) } else { Err(spent_error()) }
}

/// A value that is compared as a whole.
fn compared<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let is_left = take_steps(1 + steps_through(args[0].as_ref()));
    first(args, is_left)
}

/// A value in which something is looked for: a key in a map is found at once.
fn searched<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let is_map = args[0].get_type().kind() == Kind::Map;
    let is_left = take_steps(1 + if is_map { 0 } else { steps_through(args[0].as_ref()) });
    first(args, is_left)
}

/// `value in values` for a value that may be large: the interpreter may copy it for each element that is of another type.
fn contained<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (value, values) = (args[0].as_ref(), args[1].as_ref());
    let mismatch = || {
        let types = [value, values].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload(operators::IN, types.to_vec())
    };
    let elements = values.downcast_ref::<CelList<'_>>().map_or(1, |list| list.inner().len() as u64);
    if !take_steps(1 + elements.saturating_mul(1 + steps_through(value))) {
        return Err(spent_error());
    }
    let found = values.as_container().ok_or_else(mismatch)?.contains(value).map_err(|_| mismatch())?;
    Ok(CowVal::owned(CelBool::from(found)))
}

/// A value of which no more is read than its text.
fn text<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let is_left = take_steps(1 + length(args[0].as_ref()) / BYTES_A_STEP);
    first(args, is_left)
}

/// A value that is copied and kept.
fn kept<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let is_left = take_bytes(ELEMENT + deep(args[0].as_ref(), bytes_left()));
    first(args, is_left)
}

/// The sum of two values.
fn plus<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (left, right) = (args[0].as_ref(), args[1].as_ref());
    let mismatch = || {
        let types = [left, right].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload(operators::ADD, types.to_vec())
    };
    let (kind, other) = (left.get_type().kind(), right.get_type().kind());
    let is_time = |kind: Kind| matches!(kind, Kind::Duration | Kind::Timestamp);
    let goes = kind == other || is_time(kind) && is_time(other) || kind == Kind::List && right.as_iterable().is_some();
    // The crate's own error has copies of both.
    if !goes {
        return Err(mismatch());
    }
    if matches!(kind, Kind::String | Kind::Bytes | Kind::List) {
        let most = bytes_left();
        if !take_bytes(deep(left, most).saturating_add(deep(right, most))) {
            return Err(spent_error());
        }
    }
    let sum = left.as_adder().ok_or_else(mismatch)?.add(right)?;
    Ok(CowVal::Owned(sum.into_owned()))
}

/// `matches`, with each regular expression compiled once.
fn matching<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [text, pattern] = args.as_slice() else { return Err(ExecutionError::invalid_argument_count(2, args.len())) };
    let texts = text.downcast_ref::<CelString<'_>>().zip(pattern.downcast_ref::<CelString<'_>>());
    let (text, pattern) = texts.ok_or_else(spent_error)?;
    let (text, pattern) = (text.inner(), pattern.inner());
    let counts = pattern.contains('{');
    let length = pattern.len() as u64 * if counts { COUNTS } else { 1 };
    let steps = 1 + (text.len() as u64).saturating_mul(length) / TRIED_A_STEP;
    if !take_steps(steps) {
        return Err(spent_error());
    }
    let found = PATTERNS.with_borrow_mut(|patterns| {
        if let Some((_, regex)) = patterns.iter().find(|(known, _)| known == pattern) {
            return regex.as_ref().map(|regex| regex.is_match(text)).ok_or_else(bad_pattern);
        }
        let steps = PATTERN + PATTERN_BYTE * pattern.len() as u64 + if counts { PATTERN_COUNTS } else { 0 };
        if !take_steps(steps) {
            return Err(spent_error());
        }
        if patterns.len() >= MOST_PATTERNS {
            patterns.clear();
        }
        let regex = Regex::new(pattern).ok();
        let found = regex.as_ref().map(|regex| regex.is_match(text)).ok_or_else(bad_pattern);
        patterns.push((pattern.to_owned(), regex));
        found
    });
    Ok(CowVal::owned(CelBool::from(found?)))
}

fn bad_pattern() -> ExecutionError {
    ExecutionError::function_error("matches", "not a regular expression")
}

// The functions that count, by names that nobody can write.
const LEFT_NAME: &str = "@left";
const STEP: &str = "@step";
const COMPARED: &str = "@compared";
const SEARCHED: &str = "@searched";
const CONTAINED: &str = "@contained";
const TEXT: &str = "@text";
const KEPT: &str = "@kept";
const PLUS: &str = "@plus";
const MATCHES: &str = "@matches";

/// The standard functions of CEL, and those that count.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    let functions: [(&str, Vec<Type>, Function); 9] = [
        (LEFT_NAME, vec![DYN_TYPE, INT_TYPE, INT_TYPE], left),
        (STEP, vec![DYN_TYPE, INT_TYPE, INT_TYPE], step),
        (COMPARED, vec![DYN_TYPE], compared),
        (SEARCHED, vec![DYN_TYPE], searched),
        (CONTAINED, vec![DYN_TYPE, DYN_TYPE], contained),
        (TEXT, vec![DYN_TYPE], text),
        (KEPT, vec![DYN_TYPE], kept),
        (PLUS, vec![DYN_TYPE, DYN_TYPE], plus),
        (MATCHES, vec![STRING_TYPE, STRING_TYPE], matching),
    ];
    for (name, types, function) in functions {
        env.add_overload(name, name, types, function).expect("the names are not those of CEL");
    }
    let member = env.add_member_overload(MATCHES, "string.@matches", STRING_TYPE, vec![STRING_TYPE], matching);
    member.expect("the names are not those of CEL");
    env
}
