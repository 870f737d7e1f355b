//! One table, as it stands in the README.

/// Rows of what was measured.
#[derive(Default)]
pub(super) struct Table(Vec<[String; 5]>);

impl Table {
    /// `what` took `ours` where `baseline` took `theirs`; `reach` is where we want to be.
    pub(super) fn row(&mut self, what: &str, ours: String, baseline: &str, ratio: String, reach: &str) {
        eprintln!("{what}: {ours}; {baseline}: {ratio}");
        self.0.push([what.to_owned(), ours, baseline.to_owned(), ratio, reach.to_owned()]);
    }

    /// Prints it as Markdown.
    pub(super) fn print(&self) {
        println!("| what | decklog | baseline | ratio | reach |\n|---|---|---|---|---|");
        for row in &self.0 {
            println!("| {} |", row.join(" | "));
        }
    }
}
