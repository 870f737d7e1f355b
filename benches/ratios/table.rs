//! Tables, as they stand in docs/performance.md.

/// Rows of what was measured.
pub(super) struct Table {
    heading: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Default for Table {
    /// What is compared with a baseline.
    fn default() -> Self {
        Self::new("", &["what", "decklog", "baseline", "ratio", "target"])
    }
}

impl Table {
    /// An empty one.
    pub(super) const fn new(heading: &'static str, columns: &'static [&'static str]) -> Self {
        Self { heading, columns, rows: Vec::new() }
    }

    /// `what` took `ours` where `baseline` took `theirs`; `target` is where we want to be.
    pub(super) fn row(&mut self, what: &str, ours: String, baseline: &str, ratio: String, target: &str) {
        eprintln!("{what}: {ours}; {baseline}: {ratio}");
        self.rows.push(vec![what.to_owned(), ours, baseline.to_owned(), ratio, target.to_owned()]);
    }

    /// A cell for each column.
    pub(super) fn cells(&mut self, cells: Vec<String>) {
        let named: Vec<String> =
            self.columns.iter().zip(&cells).map(|(name, cell)| format!("{name}: {cell}")).collect();
        eprintln!("{}", named.join("; "));
        self.rows.push(cells);
    }

    /// Prints it as Markdown; nothing where nothing was measured.
    pub(super) fn print(&self) {
        if self.rows.is_empty() {
            return;
        }
        if !self.heading.is_empty() {
            println!("\n{}\n", self.heading);
        }
        println!("| {} |\n|{}", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
    }
}

/// A number as people read it: 1,000,000.
pub(super) fn thousands(number: usize) -> String {
    let (high, low) = (number / 1000, number % 1000);
    if high > 0 { format!("{},{low:03}", thousands(high)) } else { low.to_string() }
}
