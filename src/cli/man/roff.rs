//! A man page in the macros of man(7), which groff and mandoc both read.

use std::fmt::Write as _;

/// Lines of the source are not longer than this: mandoc asks for it.
const WIDTH: usize = 78;

/// A page while it is written.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    /// A heading came last: the first paragraph below it needs no macro.
    fresh: bool,
}

impl Page {
    /// Begins a page, such as DECKLOG-LOG(1).
    pub(super) fn new(name: &str, section: u8, date: &str) -> Self {
        let version = concat!("decklog ", env!("CARGO_PKG_VERSION"));
        let manual = if section == 5 { "File Formats" } else { "User Commands" };
        let name = escaped(&name.to_uppercase());
        Self { text: format!(".TH {name} {section} {date} \"{version}\" \"{manual}\"\n"), fresh: false }
    }

    /// `NAME`, in the form that whatis and apropos read.
    pub(super) fn name(&mut self, name: &str, says: &str) {
        self.section("NAME");
        self.line(&format!("{} \\- {}", escaped(name), escaped(says)));
        self.fresh = false;
    }

    pub(super) fn section(&mut self, title: &str) {
        writeln!(self.text, ".SH {}", quoted(title)).expect("a String takes everything");
        self.fresh = true;
    }

    pub(super) fn subsection(&mut self, title: &str) {
        writeln!(self.text, ".SS {}", quoted(title)).expect("a String takes everything");
        self.fresh = true;
    }

    /// A paragraph. What stands between backticks is bold.
    pub(super) fn paragraph(&mut self, says: &str) {
        if !self.fresh {
            self.text.push_str(".PP\n");
        }
        self.line(&marked(says));
        self.fresh = false;
    }

    /// A term, in roff, and what it means.
    pub(super) fn item(&mut self, term: &str, says: &str) {
        writeln!(self.text, ".TP\n{}", guarded(term)).expect("a String takes everything");
        if says.is_empty() {
            self.text.push_str("\\&\n");
        } else {
            self.line(&marked(says));
        }
        self.fresh = false;
    }

    /// Lines as they are.
    pub(super) fn example(&mut self, lines: &str) {
        if !self.fresh {
            self.text.push_str(".PP\n");
        }
        self.text.push_str(".RS 4\n.nf\n");
        for line in lines.lines() {
            writeln!(self.text, "{}", guarded(&escaped(line))).expect("a String takes everything");
        }
        self.text.push_str(".fi\n.RE\n");
        self.fresh = false;
    }

    /// The usage, in roff, a line each.
    pub(super) fn usage(&mut self, lines: &[String]) {
        self.text.push_str(&lines.iter().map(|line| guarded(line)).collect::<Vec<_>>().join("\n.br\n"));
        self.text.push('\n');
        self.fresh = false;
    }

    pub(super) fn see_also<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.section("SEE ALSO");
        self.paragraph(&names.into_iter().collect::<Vec<_>>().join(", "));
    }

    pub(super) fn done(self) -> String {
        self.text
    }

    /// Running text, broken between words.
    fn line(&mut self, roff: &str) {
        let mut line = String::new();
        for word in roff.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                writeln!(self.text, "{}", guarded(&line)).expect("a String takes everything");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        writeln!(self.text, "{}", guarded(&line)).expect("a String takes everything");
    }
}

/// A text that means itself.
pub(super) fn escaped(text: &str) -> String {
    let mut roff = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => roff.push_str("\\e"),
            '-' => roff.push_str("\\-"),
            '\'' => roff.push_str("\\(aq"),
            '`' => roff.push_str("\\(ga"),
            '^' => roff.push_str("\\(ha"),
            '~' => roff.push_str("\\(ti"),
            c if c.is_ascii() => roff.push(c),
            c => write!(roff, "\\[u{:04X}]", u32::from(c)).expect("a String takes everything"),
        }
    }
    roff
}

pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

/// A text in which backticks mark what is typed.
fn marked(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // One that has no partner is a backtick.
    if parts.len().is_multiple_of(2) {
        return escaped(text);
    }
    parts.iter().enumerate().map(|(at, part)| if at % 2 == 1 { bold(part) } else { escaped(part) }).collect()
}

/// An argument of a macro.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text).replace('"', "\\(dq"))
}

/// A line that is no request, whatever it begins with.
fn guarded(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() }
}
