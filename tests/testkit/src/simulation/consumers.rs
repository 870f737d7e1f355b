//! What consumers see of the outputs, by the class of the sink, and whether it is the log: over put-backs, losses and
//! others who write.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::PoisonError;

use decklog::journal::{Reader, SinkRow};

use super::judges::{self, Log};
use super::life::Surroundings;
use super::outputs::{Key, Line, Rows, Told};

/// What is remembered of outputs and journals over a whole simulation.
#[derive(Default)]
pub struct Consumers {
    /// Every entry that any journal has ever had.
    ever: HashSet<Told>,
    /// Outputs that somebody moved away, by sink, in order.
    moved: BTreeMap<&'static str, Vec<Vec<Line>>>,
    /// Somebody else has changed these outputs: cursors may be ahead of them until that is noticed.
    pub tampered: BTreeSet<&'static str>,
    /// What these held was moved away when there had been several timelines: where they begin, only that can tell, and what
    /// comes after it may be of an earlier epoch.
    pub unordered: BTreeSet<&'static str>,
    /// Numbers were given out a second time before anybody could know: an output may halt at them.
    pub may_halt: bool,
    /// Two decklogs have written.
    pub shared: bool,
}

/// The outputs that hold a position of their own.
pub const EXACT: [&str; 2] = ["file", "table"];

/// The name of the output that a sink delivers to.
pub fn output_of(sink: &str) -> Option<&'static str> {
    EXACT.into_iter().find(|name| sink.starts_with(name))
}

/// The sinks on disk.
pub fn rows(state: &Path) -> Result<Vec<SinkRow>, String> {
    let rows = Reader::open(state).and_then(|reader| reader.sinks());
    rows.map_err(|error| error.to_string())
}

impl Consumers {
    /// What an output holds at this moment, file after file.
    fn current(name: &str, place: &Surroundings, out: &Path) -> Result<Vec<Vec<Line>>, String> {
        if name == "table" {
            return Ok(vec![place.outputs.table.lock().lines.clone()]);
        }
        let files = judges::written(out).map_err(|error| format!("the files cannot be read: {error}"))?;
        // What a crash has torn at the end is no line yet.
        let whole = |text: &String| text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned();
        files.iter().map(|text| whole(text).lines().map(Line::of).collect()).collect()
    }

    /// An operator moves what an output holds to elsewhere.
    pub fn move_away(&mut self, name: &'static str, place: &Surroundings, out: &Path) -> Result<(), String> {
        let held = Self::current(name, place, out)?;
        self.moved.entry(name).or_default().extend(held);
        if name == "table" {
            place.outputs.table.replace(Rows::default());
        } else {
            let say = |error: std::io::Error| error.to_string();
            for entry in std::fs::read_dir(out).map_err(say)? {
                std::fs::remove_file(entry.map_err(say)?.path()).map_err(say)?;
            }
        }
        Ok(())
    }

    /// At the end of a life: no cursor is ahead of an output, epochs only grow, and who does not run says why.
    pub fn life_ended(&mut self, log: &Log, place: &Surroundings, state: &Path, out: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        let rows = match rows(state) {
            Ok(rows) => rows,
            Err(error) => return vec![error],
        };
        for row in &rows {
            if row.state.word() != "running" && row.state.detail().is_empty() {
                problems.push(format!("the sink {} is {} and does not say why", row.name, row.state.word()));
            }
        }
        if place.setup.has_receivers() {
            return problems;
        }
        let lines: Vec<Line> = match log.lines.iter().map(|line| Line::of(line)).collect() {
            Ok(lines) => lines,
            Err(error) => return vec![error],
        };
        for pair in lines.windows(2) {
            if pair[0].key >= pair[1].key {
                problems.push(format!("in the journal {:?} follows {:?}", pair[1].key, pair[0].key));
            }
        }
        self.ever.extend(lines.iter().map(|line| line.told.clone()));
        for row in &rows {
            let Some(name) = output_of(&row.name).filter(|name| !self.tampered.contains(name)) else { continue };
            let held = match self.union(name, place, out) {
                Ok(held) => held,
                Err(error) => return vec![error],
            };
            let told = lines.iter().take_while(|line| line.key.1 <= row.cursor.0);
            let missing: Vec<&Key> = told.filter(|line| !held.contains(&line.told)).map(|line| &line.key).collect();
            if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
                problems.push(format!(
                    "the cursor of {} ({}) is at {}, and its output lacks {} of the entries before it: {first:?} to {last:?}",
                    row.name,
                    row.state.word(),
                    row.cursor,
                    missing.len()
                ));
            }
        }
        problems
    }

    fn union(&self, name: &str, place: &Surroundings, out: &Path) -> Result<HashSet<Told>, String> {
        let current = Self::current(name, place, out)?;
        Ok(self.moved.get(name).into_iter().flatten().chain(&current).flatten().map(|line| line.told.clone()).collect())
    }

    /// At the end of everything, when all has been well for a while.
    pub fn judge(&self, log: &Log, place: &Surroundings, out: &Path) -> Vec<String> {
        let lines: Vec<Line> = match log.lines.iter().map(|line| Line::of(line)).collect() {
            Ok(lines) => lines,
            Err(error) => return vec![error],
        };
        let mut problems = Vec::new();
        for name in EXACT {
            if place.setup.sinks().iter().any(|sink| output_of(sink) == Some(name)) {
                match Self::current(name, place, out) {
                    Ok(current) => problems.extend(self.exactly_once(name, &lines, &current)),
                    Err(error) => problems.push(error),
                }
            }
        }
        if place.setup.sinks().iter().any(|sink| sink == "plain") {
            let plain = place.outputs.plain.lock().unwrap_or_else(PoisonError::into_inner);
            problems.extend(self.at_least_once(&lines, &plain));
        }
        problems
    }

    /// Each key once and in order in whatever an output was at a time; of all of it, what counts is the log.
    fn exactly_once(&self, name: &'static str, log: &[Line], current: &[Vec<Line>]) -> Vec<String> {
        let mut problems = Vec::new();
        let moved = self.moved.get(name).map(Vec::as_slice).unwrap_or_default();
        for part in moved.iter().chain(current) {
            for pair in part.windows(2) {
                if pair[0].key >= pair[1].key {
                    problems.push(format!("{name}: {:?} follows {:?}", pair[1].key, pair[0].key));
                }
            }
        }
        let mut keys: BTreeMap<&Key, &Line> = BTreeMap::new();
        for line in current.iter().flatten() {
            if let Some(other) = keys.insert(&line.key, line) {
                let how = if other == line { "twice" } else { "for two entries" };
                problems.push(format!("{name}: {:?} stands {how}", line.key));
            }
        }
        for line in moved.iter().chain(current).flatten() {
            if !self.ever.contains(&line.told) {
                problems.push(format!("{name}: no journal ever had {:.120}", line.text));
            }
        }
        // What came last under a key counts.
        let union: BTreeMap<&Key, &Line> =
            moved.iter().chain(current).flatten().map(|line| (&line.key, line)).collect();
        let there: HashSet<&Told> = union.values().map(|line| &line.told).collect();
        let missing: Vec<&Key> = log.iter().filter(|line| !there.contains(&line.told)).map(|line| &line.key).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            problems.push(format!("{name} lacks {} entries of the log: {first:?} to {last:?}", missing.len()));
        }
        if missing.is_empty() && !self.shared && !self.unordered.contains(name) {
            // A new epoch takes back what earlier ones said from its first entry on.
            let mut counts: Vec<&Line> = Vec::new();
            for line in union.into_values() {
                if counts.last().is_some_and(|last| last.key.0 != line.key.0) {
                    counts.retain(|earlier| earlier.key.1 < line.key.1);
                }
                counts.push(line);
            }
            if !counts.iter().map(|line| &line.told).eq(log.iter().map(|line| &line.told)) {
                let same = counts.iter().zip(log).take_while(|(one, other)| one.told == other.told).count();
                problems.push(format!(
                    "{name}: what counts of it are {} entries, the log has {}; they part at {:?} and {:?}",
                    counts.len(),
                    log.len(),
                    counts.get(same).map(|line| &line.key),
                    log.get(same).map(|line| &line.key)
                ));
            }
        }
        problems.truncate(12);
        problems
    }

    /// Each entry of the log was sent, as it is in the log.
    fn at_least_once(&self, log: &[Line], sent: &[Line]) -> Vec<String> {
        let held: HashSet<&Told> = sent.iter().map(|line| &line.told).collect();
        let lacks = log.iter().filter(|line| !held.contains(&line.told));
        let mut problems: Vec<String> = lacks.map(|line| format!("plain lacks {:?}", line.key)).collect();
        let of_nobody = sent.iter().filter(|line| !self.ever.contains(&line.told));
        problems.extend(of_nobody.map(|line| format!("plain has {:?} of nobody", line.key)));
        problems.truncate(12);
        problems
    }
}
