//! Problems: what is wrong with a configuration, and where.

use std::fmt;

use crate::core::terminal::is_obeyed;

/// Place of a key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSpan {
    /// In the file, as a line and column from 1; the column counts characters.
    File {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In this environment variable.
    Environment(String),
    /// The file as a whole.
    Whole,
}

impl SourceSpan {
    /// The line, in the file.
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::File { line, .. } => Some(*line),
            Self::Environment(_) | Self::Whole => None,
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place.
    pub place: SourceSpan,
    /// The key's path, such as `sink[1].rotate_size`; empty where there is none.
    pub key: String,
    /// The value found. Never that of a key that may hold a secret.
    pub found: String,
    /// The expectation.
    pub expected: String,
    /// The nearest valid spelling, where one is near.
    pub nearest: Option<String>,
}

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file, as it was named.
    pub file: String,
    /// At least one problem, in the order of the file.
    pub list: Vec<Problem>,
}

impl Problems {
    /// A file that cannot be read at all.
    pub(super) fn whole(file: String, found: String, expected: String) -> Self {
        Self {
            file,
            list: vec![Problem { place: SourceSpan::Whole, key: String::new(), found, expected, nearest: None }],
        }
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    /// One block for each problem, then how many there are. Control characters of the file reach no terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            match &problem.place {
                SourceSpan::File { line, column } => write!(f, "{}:{line}:{column}", self.file)?,
                SourceSpan::Environment(name) => write!(f, "environment variable {}", printable(name))?,
                SourceSpan::Whole => f.write_str(&self.file)?,
            }
            if !problem.key.is_empty() {
                write!(f, ": {}", printable(&problem.key))?;
            }
            writeln!(f)?;
            writeln!(f, "    found     {}", printable(&problem.found))?;
            writeln!(f, "    expected  {}", printable(&problem.expected))?;
            if let Some(nearest) = &problem.nearest {
                writeln!(f, "    nearest   {}", printable(nearest))?;
            }
        }
        match self.list.len() {
            1 => f.write_str("1 problem in the configuration"),
            count => write!(f, "{count} problems in the configuration"),
        }
    }
}

fn printable(text: &str) -> String {
    let spell = |c: char| if is_obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(spell).collect()
}
