//! The picture of the README: what a terminal shows, as SVG. Colours and text are those of the real output.

use std::fmt::Write;

/// What is asked in it.
pub(crate) const LINES: [&str; 3] =
    ["decklog log deploy/web", "decklog blame deploy/web .spec.replicas image", "decklog diff deploy/web --from 3"];

/// Of a character, in pixels; of a line; of the margin.
const CHARACTER: usize = 8;
const LINE: usize = 18;
const MARGIN: usize = 16;

/// The colours of the terminal: its ground, its text, and those of the codes 30 to 37.
const GROUND: &str = "#1d2430";
const TEXT: &str = "#d7dce4";
const COLOURS: [&str; 8] = ["#5c6675", "#f0787b", "#8fd08a", "#e6c673", "#7db0f0", "#c99bf0", "#6fd0d0", "#ffffff"];

/// How text is shown, as the codes said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    colour: Option<usize>,
    bold: bool,
    dim: bool,
}

impl Style {
    fn obey(&mut self, codes: &str) {
        for code in codes.split(';').map(|code| code.parse().unwrap_or(0)) {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                22 => (self.bold, self.dim) = (false, false),
                30..=37 => self.colour = Some(code - 30),
                90..=97 => self.colour = Some(code - 90),
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    fn attributes(self) -> String {
        let mut text = String::new();
        if let Some(colour) = self.colour {
            write!(text, " fill=\"{}\"", COLOURS[colour]).unwrap();
        }
        if self.bold {
            text.push_str(" font-weight=\"bold\"");
        }
        if self.dim {
            text.push_str(" opacity=\"0.65\"");
        }
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What stands between runs of spaces, which SVG makes one, each with its column.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut column = 0;
    for piece in text.split("  ") {
        let bare = piece.trim_start();
        if !bare.is_empty() {
            pieces.push((column + piece.chars().count() - bare.chars().count(), bare.trim_end()));
        }
        column += piece.chars().count() + 2;
    }
    pieces
}

/// A screen with its escape codes as a picture of `columns`.
pub(crate) fn svg(screen: &str, columns: usize) -> String {
    let lines: Vec<&str> = screen.trim_end().lines().collect();
    let (width, height) = (columns * CHARACTER + 2 * MARGIN, lines.len() * LINE + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <!-- made by tests/book: see tests/README.md -->\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\" fill=\"{TEXT}\">\n"
    );
    let mut style = Style::default();
    for (n, line) in lines.iter().enumerate() {
        let (mut column, y) = (0, MARGIN + n * LINE + LINE - 5);
        for (i, part) in line.split('\u{1b}').enumerate() {
            let mut text = part;
            if i > 0
                && let Some((codes, rest)) = part.strip_prefix('[').and_then(|rest| rest.split_once('m'))
            {
                style.obey(codes);
                text = rest;
            }
            let attributes = style.attributes();
            for (at, piece) in pieces(text) {
                // Placed and stretched by columns, so that every font keeps them.
                let (x, length) = (MARGIN + (column + at) * CHARACTER, piece.chars().count() * CHARACTER);
                let piece = escaped(piece);
                writeln!(svg, "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\"{attributes}>{piece}</text>").unwrap();
            }
            column += text.chars().count();
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}
