//! Filters: CEL over an entry.
//!
//! The variables are the keys of an entry (`type`, `kind`, `object`, ...; all of them in [`VARIABLES`]), and `by`, the names of the
//! managers that wrote it. A key that an entry does not have is `null`, and `has(object.spec)` is false where there is no `object`.
//! `actor` has all its members for every entry: empty texts and lists where the entry is no ACTOR, unless a question about the stored
//! log brings the sender of a change with it ([`Filter::selects_of`]).
//! Deeper down it is
//! CEL's own rule: to read a member that is not there is an error, which `has(...)`, `object.?spec.?replicas` with
//! `.orValue(...)`, and the other side of `||` and `&&` avoid. An expression that has no answer for an entry gives an
//! error, and the caller delivers the entry: a filter never loses what it does not understand.
//!
//! What cannot have an answer for any entry (`kind == 1`, `name && true`, `change.area`) is refused when it is compiled.
//!
//! An evaluation takes a bounded number of steps, and values of bounded size (`budget`): beyond that it has no answer, and an
//! expression that needs more for an empty entry is refused when it is compiled.
//!
//! Of an entry only what the expression names is turned into values, and an expression that does not name `object` never
//! reads it: `kind == "Pod"` costs the same whatever the size of the object.

mod budget;
mod entry;
mod names;
mod types;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::types::CelBool;
use cel::parser::{Expression, Parser};
use cel::{Context, Env, ExecutionError, Value};

pub use budget::{Cost, MOST_BYTES, MOST_STEPS};
use entry::Need;

use crate::core::k8s::audited::Actor;
use crate::core::spelling::{Format, Text, Wrong, text_value};
use crate::core::wire;

/// The variables of a filter: the keys of an entry, and `by`, the names of its [authors](wire::authors).
pub const VARIABLES: [&str; 24] = [
    "v",
    "seq",
    "epoch",
    "id",
    "time",
    "happened",
    "happenedBetween",
    "type",
    "evidence",
    "cluster",
    "apiVersion",
    "kind",
    "resource",
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "managers",
    "change",
    "object",
    "gap",
    ACTOR,
    "redacted",
    BY,
];

/// The names of the managers that wrote an entry, as a list of texts.
const BY: &str = "by";

/// The sender of a change, as a map whose members are always there.
const ACTOR: &str = "actor";

/// The longest filter: far more than a person writes, and short enough for the parser's stack.
const MAX_LENGTH: usize = 4096;

/// Deepest nesting of an expression: the parser and the interpreter take some kilobytes of stack for each level.
const MAX_NESTING: usize = 48;

/// Enough for the parser at [`MAX_NESTING`]. It is only used as far as it is needed.
const PARSER_STACK: usize = 32 << 20;

/// Error of a filter, or of its evaluation for one entry. Quotes nothing of an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is no filter.
    #[error("line {line}, column {column}: {message}")]
    Compile {
        /// Line in the text, from 1.
        line: usize,
        /// Column in the line, from 1, in characters.
        column: usize,
        /// The error, in one sentence.
        message: String,
    },
    /// It has no answer for this entry: the caller delivers the entry.
    #[error("{0}")]
    Evaluate(String),
    /// The evaluation takes more steps or bytes than one entry may. The answer is unknown.
    #[error("{0}")]
    Budget(String),
}

/// The standard functions of CEL and those that count, made once.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(budget::environment()));

/// A compiled filter. Copies share what it was compiled to.
#[derive(Clone, Debug)]
pub struct Filter(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    text: String,
    expression: Expression,
    need: Need,
    compared: Vec<(String, String)>,
}

/// Filters are equal that say the same with the same letters.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Filter {}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Text for Filter {
    const FORMAT: &'static str = "cel";
    const EXPECTED: &'static str =
        "a CEL expression over the keys of an entry, such as 'type == \"DELETED\" || kind == \"Secret\"'";

    /// The place in the expression is reported beside the place in the file.
    fn read(text: &str) -> Result<Self, Wrong> {
        Self::compile(text).map_err(|error| match error {
            FilterError::Compile { line, column, message } => {
                let (message, near) = match message.split_once("; did you mean ") {
                    Some((message, near)) => (message, Some(near.trim_matches(['"', '?']).to_owned())),
                    None => (message.as_str(), None),
                };
                let place =
                    if text.contains('\n') { format!("line {line} of the expression") } else { format!("{text:?}") };
                Wrong { found: format!("{message}, at character {column} of {place}"), nearest: near }
            }
            FilterError::Evaluate(message) | FilterError::Budget(message) => message.into(),
        })
    }
}

text_value!(Filter);

/// The formats of these texts.
pub const FORMATS: &[Format] = &[Format::of::<Filter>()];

impl Filter {
    /// Compiles a CEL expression over the keys of an entry.
    ///
    /// # Errors
    /// Where the text is not a CEL expression, names something that an entry does not have, or puts together what does
    /// not go together.
    pub fn compile(text: &str) -> Result<Self, FilterError> {
        let first = |message: String| FilterError::Compile { line: 1, column: 1, message };
        if text.trim().is_empty() {
            return Err(first("the filter is empty; leave it out to get everything".to_owned()));
        }
        if text.len() > MAX_LENGTH {
            return Err(first(format!("the filter is longer than {MAX_LENGTH} bytes")));
        }
        names::check_nesting(text)?;
        let source = names::hide_reserved(text);
        // The parser is not ours: whatever it does with odd input ends here. It takes tens of kilobytes of stack for
        // each open bracket, more than the threads of a runtime have.
        let parse = || {
            let parser = Parser::new().enable_optional_syntax(true).enable_ident_escape_syntax(true);
            parser.parse_with_source_info(&source)
        };
        let parsed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("filter".to_owned()).stack_size(PARSER_STACK);
            thread.spawn_scoped(scope, parse).ok()?.join().ok()
        });
        let parsed = parsed.ok_or_else(|| first("the CEL parser cannot read this".to_owned()))?;
        let (mut expression, positions) = parsed.map_err(|errors| names::parse_error(text, &errors))?;
        let need = names::resolve(&mut expression, text, &positions)?;
        let compared = types::check(&expression, text, &positions)?;
        let loops = budget::meter(&mut expression);
        let filter = Self(Arc::new(Compiled { text: text.to_owned(), expression, need, compared }));
        // What is too much without anything of an entry is too much for each.
        if loops
            && filter.matches(b"{}").is_err()
            && let Some((spent, node)) = budget::spent()
        {
            return Err(names::error_at_node(text, &positions, node, spent.to_string()));
        }
        Ok(filter)
    }

    /// The text that it was compiled from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The texts that keys of an entry are compared with: `("kind", "Pod")`.
    #[must_use]
    pub fn compared(&self) -> &[(String, String)] {
        &self.0.compared
    }

    /// Reports whether the filter needs nothing but these keys of an entry.
    #[must_use]
    pub fn asks_only_for(&self, keys: &[&str]) -> bool {
        self.0.need.members.keys().all(|key| keys.contains(&key.as_str()))
    }

    /// Reports whether the filter asks for the sender of a change.
    #[must_use]
    pub fn asks_for_sender(&self) -> bool {
        self.0.need.members.contains_key(ACTOR)
    }

    /// Evaluates the filter for an entry.
    ///
    /// # Errors
    /// Where the expression has no answer for this entry, one that is no bool, or none within [`MOST_STEPS`] and
    /// [`MOST_BYTES`]: the caller delivers the entry.
    pub fn matches(&self, line: &[u8]) -> Result<bool, FilterError> {
        self.matches_of(line, None)
    }

    fn matches_of(&self, line: &[u8], sender: Option<&Actor>) -> Result<bool, FilterError> {
        budget::begin();
        let answer = self.answer(line, sender);
        // Some of what the interpreter made of it may be an answer all the same.
        budget::spent().map_or(answer, |(spent, _)| Err(FilterError::Budget(spent.to_string())))
    }

    /// Evaluates the filter and returns the cost of the evaluation.
    ///
    /// # Errors
    /// As for [`Filter::matches`].
    pub fn measured(&self, line: &[u8]) -> (Result<bool, FilterError>, Cost) {
        (self.matches(line), budget::cost())
    }

    fn answer(&self, line: &[u8], sender: Option<&Actor>) -> Result<bool, FilterError> {
        let needs = |key| self.0.need.members.contains_key(key);
        let without = (!needs("object") && !needs(BY)).then(|| wire::apart(line).0);
        let values = entry::read(without.as_deref().unwrap_or(line), &self.0.need, sender)
            .map_err(|error| FilterError::Evaluate(format!("the entry cannot be read: {}", entry::category(&error))))?;
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.set_variable_resolver(&values);
        // The interpreter is not ours either.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let value = Value::resolve_val(&self.0.expression, &context).map_err(|error| self.explain(&error))?;
            value
                .downcast_ref::<CelBool>()
                .map(|answer| *answer.inner())
                .ok_or_else(|| format!("the answer is of type {}, not bool", value.get_type().name()))
        }));
        result.unwrap_or_else(|_| Err("the CEL interpreter failed".to_owned())).map_err(FilterError::Evaluate)
    }

    /// Reports whether the filter selects the entry for a reader. An expression that fails on an entry does not select it.
    ///
    /// # Errors
    /// [`FilterError::Budget`]: the answer is unknown, so the reader must be told instead of losing the entry silently.
    pub fn selects(&self, line: &[u8]) -> Result<bool, FilterError> {
        self.selects_of(line, None)
    }

    /// Reports whether the filter selects the entry of a change whose sender is known from the ACTOR that came later.
    ///
    /// # Errors
    /// As for [`Filter::selects`].
    pub fn selects_of(&self, line: &[u8], sender: Option<&Actor>) -> Result<bool, FilterError> {
        match self.matches_of(line, sender) {
            Err(error @ FilterError::Budget(_)) => Err(error),
            answer => Ok(answer.unwrap_or(false)),
        }
    }

    /// Describes an error without the values that the crate's own texts quote.
    fn explain(&self, error: &ExecutionError) -> String {
        if let ExecutionError::NoSuchKey(key) = error {
            // A name that the expression spells out is not the entry's.
            return if self.0.text.contains(key.as_str()) {
                format!("there is no member {key:?}; has(...) says whether there is")
            } else {
                "there is no such member; has(...) says whether there is".to_owned()
            };
        }
        if let ExecutionError::NoSuchOverload(error) = error {
            return format!(
                "{:?} does not go with values of type {}",
                names::operator(error.function().trim_start_matches('@')),
                error.argument_types().join(" and ")
            );
        }
        if let ExecutionError::FunctionError { function, .. } = error {
            return format!("{function}(...) fails");
        }
        if matches!(error, ExecutionError::IndexOutOfBounds(_)) {
            return "the list is shorter".to_owned();
        }
        if matches!(error, ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_)) {
            return "division by zero".to_owned();
        }
        "the expression has no answer for these values".to_owned()
    }
}

type Test = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Test of an entry, or of its row header.
pub type Passes<'w> = &'w dyn Fn(&[u8]) -> bool;

/// Selection of entries, divided into a test of the row header and a test of the entry.
pub struct Wanted {
    test: Test,
    /// It says of an entry's row header what it says of the entry.
    by_row: bool,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("by_row", &self.by_row).finish_non_exhaustive()
    }
}

impl Wanted {
    /// The entries that a filter is true for, and those that it has no answer for where `open` says so.
    #[must_use]
    pub fn new(filter: Filter, open: impl Fn(&FilterError) -> bool + Send + Sync + 'static) -> Self {
        let by_row = filter.asks_only_for(&wire::ROW);
        Self { test: Box::new(move |line| filter.matches(line).unwrap_or_else(|error| open(&error))), by_row }
    }

    /// A test that is given the whole entry.
    pub fn by_entry(test: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Box::new(test), by_row: false }
    }

    /// A test that looks at nothing but what [`wire::ROW`] names, and may be given no more.
    pub fn by_row(test: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Box::new(test), by_row: true }
    }

    /// The test of row headers, where they are enough.
    #[must_use]
    pub fn of_row(&self) -> Option<Passes<'_>> {
        self.by_row.then_some(&*self.test as Passes<'_>)
    }

    /// Reports whether an entry is selected.
    #[must_use]
    pub fn is(&self, line: &[u8]) -> bool {
        (self.test)(line)
    }

    /// Reports whether an entry is selected that has passed [`Wanted::of_row`], if there is such a test.
    #[must_use]
    pub fn of_entry(&self, line: &[u8]) -> bool {
        self.by_row || (self.test)(line)
    }
}

#[cfg(test)]
mod tests;
