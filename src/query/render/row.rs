//! Lines for people: colours, widths, tables, and numbers as people read them.
//!
//! Names and values come from the cluster, where anyone with the right to write an object chooses them. Nothing of
//! them is put on a line before [`printable`] has taken away what a terminal would obey.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::core::terminal::wrap;
pub use crate::core::terminal::{TerminalStyle, printable};

/// Meanings that have a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Came to be, is well.
    Good,
    /// Changed, needs a look.
    Change,
    /// Went, is broken.
    Bad,
    /// Must not be overlooked.
    Alarm,
    /// Important text.
    Strong,
    /// Author of a change.
    Who,
    /// Secondary text.
    Faint,
}

impl Ink {
    const fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Change => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Alarm => AnsiColor::Magenta.on_default().bold(),
            Self::Strong => Style::new().bold(),
            Self::Who => AnsiColor::Cyan.on_default(),
            Self::Faint => Style::new().dimmed(),
        }
    }
}

/// One line being put together: pieces with their ink, cut at the width of a terminal. What does not fit can go on in
/// the line below.
#[derive(Debug)]
pub struct Row {
    look: TerminalStyle,
    text: String,
    columns: usize,
    /// Indentation of continuation lines.
    hang: usize,
    /// Columns between which words go on in the line below, where nothing is cut.
    wraps: Option<usize>,
}

impl Row {
    /// An empty line.
    #[must_use]
    pub const fn new(look: TerminalStyle) -> Self {
        Self { look, text: String::new(), columns: 0, hang: 0, wraps: None }
    }

    /// Reports whether the output is a terminal.
    #[must_use]
    pub const fn is_on_terminal(&self) -> bool {
        self.look.terminal
    }

    /// Lines below begin here, or earlier where little room would be left.
    pub fn hang(&mut self, column: usize) {
        self.hang = self.look.width.map_or(column, |width| column.min(width / 3));
    }

    /// Columns used so far. One character counts as one column, which is right for everything that Kubernetes lets
    /// into a name.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Lets the line be as long as it needs: on a terminal its words go on in the lines below, at the hang.
    pub const fn uncut(&mut self) {
        if let Some(width) = self.look.width.take() {
            self.wraps = Some(width);
        }
    }

    /// Columns that are left, where there is an end.
    #[must_use]
    pub fn room(&self) -> Option<usize> {
        self.look.width.map(|width| width.saturating_sub(self.columns))
    }

    /// Adds a piece that is already [`printable`].
    pub fn put(&mut self, ink: Option<Ink>, piece: &str) -> &mut Self {
        let piece = match self.room() {
            Some(room) => cut(piece, room),
            None => Cow::Borrowed(piece),
        };
        if piece.is_empty() {
            return self;
        }
        self.columns += piece.chars().count();
        match ink.filter(|_| self.look.color).map(Ink::style) {
            Some(style) => {
                let written = write!(self.text, "{style}{piece}{style:#}");
                debug_assert!(written.is_ok(), "writing into memory does not fail");
            }
            None => self.text.push_str(&piece),
        }
        self
    }

    /// Adds a piece that is already [`printable`] behind a gap, or on a line below where it does not fit whole on this
    /// one.
    pub fn flow(&mut self, ink: Option<Ink>, gap: &str, piece: &str) -> &mut Self {
        if self.takes(&[(gap, piece)], 0) {
            return self.put(None, gap).put(ink, piece);
        }
        if self.columns > self.hang {
            self.text.truncate(self.text.trim_end().len());
            self.text.push('\n');
            self.text.push_str(&" ".repeat(self.hang));
            self.columns = self.hang;
        }
        self.put(ink, piece)
    }

    /// Reports whether the pieces [flow](Row::flow) into this line and `below` more lines.
    #[must_use]
    pub fn takes(&self, pieces: &[(&str, &str)], mut below: usize) -> bool {
        let Some(width) = self.look.width else { return true };
        let mut column = self.columns;
        pieces.iter().all(|(gap, piece)| {
            let (gap, piece) = (gap.chars().count(), piece.chars().count());
            column += gap + piece;
            if column > width && below > 0 {
                below -= 1;
                column = self.hang + piece;
            }
            column <= width
        })
    }

    /// Adds blanks up to `column`, at least one.
    pub fn to(&mut self, column: usize) -> &mut Self {
        let blanks = column.saturating_sub(self.columns).max(1);
        self.put(None, &" ".repeat(blanks))
    }

    /// The line.
    #[must_use]
    pub fn finish(self) -> String {
        let text = self.text.trim_end();
        self.wraps.map_or_else(|| text.to_owned(), |width| wrap(text, width, self.hang))
    }
}

/// At most `columns` characters of `text`, with `…` where something was cut.
#[must_use]
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if text.len() <= columns || text.chars().count() <= columns {
        return Cow::Borrowed(text);
    }
    let Some(keep) = columns.checked_sub(1) else { return Cow::Borrowed("") };
    Cow::Owned(text.chars().take(keep).chain(['…']).collect())
}

/// Returns a sentence on lines of its own, whole whatever its length; the lines below begin with `hang` blanks.
#[must_use]
pub fn sentence(look: TerminalStyle, hang: usize, ink: Option<Ink>, text: &str) -> String {
    let mut row = Row::new(look);
    row.uncut();
    row.hang(hang);
    row.put(ink, text);
    row.finish()
}

/// Number of columns of a table that a terminal always shows.
const FEW_COLUMNS: usize = 3;

/// Rows under aligned columns, two blanks apart. A cell is text with its ink. A terminal leaves out the last columns that it has no
/// room for.
#[must_use]
pub fn table(look: TerminalStyle, head: &[&str], rows: &[Vec<(Option<Ink>, String)>]) -> Vec<String> {
    columns(look, head, rows, false)
}

/// Rows as [`table`] makes them, of which a terminal leaves nothing out: the words of the last column go on in the lines below.
#[must_use]
pub fn whole_table(look: TerminalStyle, head: &[&str], rows: &[Vec<(Option<Ink>, String)>]) -> Vec<String> {
    columns(look, head, rows, true)
}

fn columns(look: TerminalStyle, head: &[&str], rows: &[Vec<(Option<Ink>, String)>], whole: bool) -> Vec<String> {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, (_, cell)) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let start = |count: usize| widths[..count].iter().map(|width| width + 2).sum::<usize>();
    let room = look.width.unwrap_or(usize::MAX);
    let (all, few) = (widths.len(), FEW_COLUMNS.min(widths.len()));
    let fitting = (few..=all).rev().find(|count| start(*count) <= room.saturating_add(2)).unwrap_or(few);
    let shown = &widths[..if whole { all } else { fitting }];
    let line = |cells: &mut dyn Iterator<Item = (Option<Ink>, &str)>| {
        let (mut row, mut column) = (Row::new(look), 0);
        if whole {
            row.uncut();
            row.hang(start(all - 1));
        }
        for ((ink, cell), width) in cells.zip(shown) {
            if column > 0 {
                row.to(column);
            }
            row.put(ink, cell);
            column += width + 2;
        }
        row.finish()
    };
    let head = line(&mut head.iter().map(|cell| (Some(Ink::Faint), *cell)));
    let body = rows.iter().map(|row| line(&mut row.iter().map(|(ink, cell)| (*ink, cell.as_str()))));
    std::iter::once(head).chain(body).collect()
}

/// Formats a duration in its two largest units: `3m12s`, `2d4h`.
#[must_use]
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let pair = |a: i64, unit: &str, b: i64, small: &str| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) => pair(minutes, "m", rest, "s"),
        (0, hours, minutes) => pair(hours, "h", minutes, "m"),
        (days, hours, _) => pair(days, "d", hours, "h"),
    }
}

/// A size in bytes as people read it: `1.2 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mut unit = "B";
    // In tenths, so that no float is needed; the largest u64 has 1.8e19 bytes and fits as tenths in u128.
    let mut tenths = u128::from(bytes) * 10;
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = larger;
    }
    if unit == "B" || tenths >= 1000 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// A number with its thousands apart: `12,345`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 entry`, `2 entries`.
#[must_use]
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Number of names of a list that are spelled out.
const NAMED: usize = 3;

/// `pods`, `nodes and pods`, `deployments.apps, nodes, pods and 57 more`
#[must_use]
pub fn some(names: &[String]) -> String {
    let (shown, more) = names.split_at(names.len().min(NAMED));
    match (shown, more) {
        (shown, [_, ..]) => format!("{} and {} more", shown.join(", "), more.len()),
        ([first @ .., last], []) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        (shown, []) => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_cut_at_the_width_and_colours_do_not_count() {
        let mut row = Row::new(TerminalStyle { color: true, terminal: true, width: Some(10) });
        row.put(Some(Ink::Good), "ADDED").to(8).put(None, "web-1").put(None, "more");
        assert_eq!(row.finish(), "\u{1b}[32mADDED\u{1b}[0m   w…");
        let mut row = Row::new(TerminalStyle::default());
        row.put(Some(Ink::Good), "ADDED").to(2).put(None, "x");
        assert_eq!(row.finish(), "ADDED x");
    }

    #[test]
    fn what_does_not_fit_stands_whole_on_the_line_below() {
        let mut row = Row::new(TerminalStyle { color: true, terminal: true, width: Some(12) });
        row.hang(2);
        row.put(None, "12:00 ").flow(Some(Ink::Who), "", "kubectl").flow(None, "  ", "image 1,").flow(None, " ", "x");
        assert_eq!(row.finish(), "12:00\n  \u{1b}[36mkubectl\u{1b}[0m\n  image 1, x");
        let mut row = Row::new(TerminalStyle { color: false, terminal: true, width: Some(12) });
        row.hang(9);
        assert!(row.takes(&[("", "kubectl"), (" ", "set")], 0));
        assert!(!row.takes(&[("", "kubectl"), (" ", "scale")], 0));
        assert!(row.takes(&[("", "kubectl"), (" ", "scale")], 1), "the hang leaves two thirds of the line");
        row.flow(None, "", "a-name-of-18-chars").flow(None, " ", "y");
        assert_eq!(row.finish(), "a-name-of-1…\n    y");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 59, 60, 192, 7200, 93_600].map(span), ["0s", "59s", "1m", "3m12s", "2h", "1d2h"]);
        assert_eq!(
            [0, 1023, 1024, 1_258_291, 900 << 20, u64::MAX].map(size),
            ["0 B", "1023 B", "1.0 KiB", "1.1 MiB", "900 MiB", "15.9 EiB"]
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        assert_eq!(
            [1, 2, 3, 5].map(|count| some(&names[..count])),
            ["a", "a and b", "a, b and c", "a, b, c and 2 more"]
        );
    }

    #[test]
    fn a_table_aligns_its_columns() {
        let rows = [
            vec![(None, "pods".to_owned()), (None, "1".to_owned())],
            vec![(None, "x".to_owned()), (None, "22".to_owned())],
        ];
        assert_eq!(table(TerminalStyle::default(), &["SOURCE", "N"], &rows), ["SOURCE  N", "pods    1", "x       22"]);
        let row: Vec<_> = ["pods", "watching", "12", "7:41"].map(|cell| (None, cell.to_owned())).into();
        let within = |width| {
            let look = TerminalStyle { width: Some(width), ..TerminalStyle::default() };
            table(look, &["SOURCE", "STATE", "N", "RESUMES AT"], std::slice::from_ref(&row))[1].clone()
        };
        assert_eq!([32, 31, 5].map(within), ["pods    watching  12  7:41", "pods    watching  12", "pods…"]);
        let text = [vec![(None, "1".to_owned()), (None, "configmaps shop/feature-flags".to_owned())]];
        let look = TerminalStyle { width: Some(20), ..TerminalStyle::default() };
        assert_eq!(whole_table(look, &["N", "OBJECT"], &text)[1], "1  configmaps\n   shop/feature-flags");
    }
}
