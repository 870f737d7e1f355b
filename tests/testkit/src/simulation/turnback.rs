//! What befalls state directories and outputs: put back to any earlier point, lost, away, changed by others, shared.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use decklog::journal::Reader;
use decklog::sim;
use jiff::SignedDuration;
use tokio::time::Instant;

use super::consumers::{self, EXACT};
use super::faults::Fault;
use super::judges::{self, Log};
use super::life::{BadDisk, Life};
use super::outputs::{Behind, Rows};
use super::{CONVERGES, Run, copy};

/// Not more copies are kept at a time.
const COPIES: usize = 5;

/// What can be put back, and what has been.
#[derive(Default)]
pub struct Past {
    states: Vec<State>,
    outputs: Vec<Output>,
    copies: usize,
    losses: usize,
    /// A state directory was put back or lost.
    pub turned: bool,
    /// The selector has changed.
    pub scoped: bool,
    pub twin: Option<Twin>,
    /// The gates were shut when decklog was put back.
    unseen: bool,
}

/// A copy of a state directory.
struct State {
    dir: PathBuf,
    epoch: String,
    head: u64,
}

/// A copy of what outputs held.
struct Output {
    /// How often a state directory had been lost by then.
    losses: usize,
    dir: PathBuf,
    table: Rows,
}

/// Another decklog with a copy of the journal, at the same outputs.
pub struct Twin {
    pub life: Option<Life>,
    state: PathBuf,
    until: Instant,
}

impl Run {
    /// Something is copied, put back, lost, shared; or nothing happens.
    pub async fn turn_back(&mut self) {
        if self.dice.percent(40)
            && let Err(error) = self.keep()
        {
            return self.stage().fail(format!("no copy can be made: {error}"));
        }
        if self.past.twin.as_ref().is_some_and(|twin| twin.until <= Instant::now()) {
            self.end_twin().await;
        }
        if !self.dice.percent(35) {
            return;
        }
        let all = [
            Fault::PutBack,
            Fault::PutBackAgain,
            Fault::PutBackUnseen,
            Fault::StateLost,
            Fault::OutputPutBack,
            Fault::OutputOlder,
            Fault::OutputEmptied,
            Fault::OutputReplaced,
            Fault::OutputAway,
            Fault::OutputHangs,
            Fault::SharedByCopies,
        ];
        let possible: Vec<Fault> = all.into_iter().filter(|fault| self.stage().enables(*fault)).collect();
        if possible.is_empty() {
            return;
        }
        match *self.dice.pick(&possible) {
            fault @ (Fault::PutBack | Fault::PutBackAgain | Fault::PutBackUnseen) => self.put_back(fault).await,
            Fault::StateLost => self.lose().await,
            fault @ (Fault::OutputAway | Fault::OutputHangs) => self.away(fault).await,
            Fault::SharedByCopies => self.share().await,
            fault => {
                if let Err(error) = self.tamper(fault).await {
                    self.stage().fail(format!("an output cannot be changed: {error}"));
                }
            }
        }
    }

    /// Keeps a copy of what is on disk at this moment, and of what the outputs hold.
    fn keep(&mut self) -> io::Result<()> {
        if Reader::open(&self.state()).is_err() {
            return Ok(());
        }
        self.past.copies += 1;
        let (states, outputs) = (self.past.states.len(), self.past.outputs.len());
        if self.dice.percent(60) {
            let dir = self.dir.path().join(format!("copy-{}", self.past.copies));
            copy(&self.state(), &dir)?;
            let read = Reader::open(&dir).and_then(|reader| Ok((reader.epoch()?, reader.head()?.0)));
            let (epoch, head) = read.map_err(io::Error::other)?;
            let state = State { dir, epoch, head };
            self.stage().note(format_args!("a copy at {}/{}", state.epoch, state.head));
            if states < COPIES {
                self.past.states.push(state);
            } else {
                let at = self.dice.roll(COPIES);
                let old = std::mem::replace(&mut self.past.states[at], state);
                fs::remove_dir_all(old.dir)?;
            }
        } else {
            let dir = self.dir.path().join(format!("kept-{}", self.past.copies));
            copy(&self.out(), &dir)?;
            let output = Output { losses: self.past.losses, dir, table: self.place.outputs.table.lock().clone() };
            if outputs < COPIES {
                self.past.outputs.push(output);
            } else {
                let at = self.dice.roll(COPIES);
                let old = std::mem::replace(&mut self.past.outputs[at], output);
                fs::remove_dir_all(old.dir)?;
            }
        }
        Ok(())
    }

    /// Decklog ends, in one way or the other.
    async fn end_life(&mut self) {
        if self.dice.percent(50) { self.stop().await } else { self.crash().await }
    }

    /// The next life begins with this copy, or with nothing.
    fn replace_state(&mut self, with: Option<&PathBuf>) {
        let old = self.state();
        let out = self.out();
        self.generation += 1;
        let made = match with {
            Some(dir) => copy(dir, &self.state()),
            None => fs::create_dir(self.state()),
        };
        let moved = fs::rename(out, self.out());
        if let Err(error) = made.and(moved).and_then(|()| fs::remove_dir_all(old)) {
            self.stage().fail(format!("a state directory cannot be put back: {error}"));
        }
        self.past.turned = true;
    }

    /// The machine that is put back may be just the one whose clock is behind.
    fn set_clock(&mut self) {
        if self.stage().enables(Fault::LostInThePast) && self.dice.percent(60) {
            let hours = self.dice.between(1, 30);
            self.stage().struck(Fault::LostInThePast, format_args!("by {hours} hours"));
            self.clock_was_set_back = true;
            self.simulation.jump(SignedDuration::from_hours(-i64::try_from(hours).unwrap_or(1)));
        }
    }

    async fn put_back(&mut self, fault: Fault) {
        let Ok(now) = Reader::open(&self.state()).and_then(|reader| reader.epoch()) else { return };
        // A copy from before an epoch that outputs know is a case of its own.
        let fits = |state: &&State| fault == Fault::PutBackUnseen || (state.epoch == now) == (fault == Fault::PutBack);
        let fitting: Vec<(PathBuf, u64)> =
            self.past.states.iter().filter(fits).map(|state| (state.dir.clone(), state.head)).collect();
        if fitting.is_empty() || (self.past.unseen && fault != Fault::PutBackUnseen) {
            return;
        }
        let (dir, head) = self.dice.pick(&fitting).clone();
        self.end_life().await;
        self.place.outputs.open();
        self.set_clock();
        self.stage().struck(fault, format_args!("to {head}"));
        self.replace_state(Some(&dir));
        if fault != Fault::PutBackUnseen {
            // Somebody looks at how it starts.
            self.begins = Instant::now();
            return self.pass(Duration::from_secs(30)).await;
        }
        self.past.unseen = true;
        self.consumers.may_halt = true;
        self.shut();
        for _ in 0..self.dice.roll(4) {
            let pause = self.dice.millis(5_000, 60_000);
            self.steps(pause).await;
            self.end_life().await;
        }
        if self.dice.percent(50) {
            // They come back under a running decklog, or before its next start.
            self.place.outputs.open();
        }
    }

    async fn lose(&mut self) {
        if self.past.unseen {
            return;
        }
        self.end_life().await;
        self.place.outputs.open();
        self.set_clock();
        self.stage().struck(Fault::StateLost, format_args!(""));
        self.past.losses += 1;
        self.replace_state(None);
        self.begins = Instant::now();
        self.pass(Duration::from_secs(30)).await;
    }

    /// Outputs go away, some for longer than others.
    fn shut(&mut self) {
        let silent = self.stage().enables(Fault::OutputHangs);
        let first = self.dice.roll(EXACT.len());
        for at in 0..self.dice.between(1, EXACT.len()) {
            let name = EXACT[(first + at) % EXACT.len()];
            let behind = if silent && self.dice.percent(50) { Behind::Silence } else { Behind::Nobody };
            let time = *self.dice.pick(&[4_000, 20_000, 90_000, 600_000]);
            self.stage().note(format_args!("{name} is away: {behind:?} for {time} ms"));
            self.place.outputs.gate(name).shut(behind, Duration::from_millis(time));
        }
    }

    /// Something happens in the cluster while time passes.
    async fn steps(&mut self, time: Duration) {
        for _ in 0..4 {
            for _ in 0..self.dice.roll(4) {
                self.world.step();
            }
            self.pass(time / 4).await;
        }
    }

    async fn away(&mut self, fault: Fault) {
        self.stage().struck(fault, format_args!(""));
        let behind = if fault == Fault::OutputHangs { Behind::Silence } else { Behind::Nobody };
        let name = *self.dice.pick(&EXACT);
        let time = self.dice.millis(4_000, 120_000);
        self.place.outputs.gate(name).shut(behind, time);
        for _ in 0..self.dice.roll(3) {
            self.end_life().await;
            let pause = self.dice.millis(3_000, 40_000);
            self.steps(pause).await;
        }
    }

    /// Somebody changes what an output holds.
    async fn tamper(&mut self, fault: Fault) -> io::Result<()> {
        let name = if fault == Fault::OutputReplaced { "file" } else { *self.dice.pick(&EXACT) };
        if fault != Fault::OutputReplaced && (name == "file" || self.dice.percent(50)) {
            self.end_life().await;
        }
        let (stage, current) = (Arc::clone(self.stage()), self.out().join("events.jsonl"));
        match fault {
            Fault::OutputReplaced => {
                let Ok(bytes) = fs::read(&current) else { return Ok(()) };
                let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                if self.life.is_none() || lines.len() < 2 {
                    return Ok(());
                }
                let kept = self.dice.between(1, lines.len() - 1);
                stage.struck(fault, format_args!("to {kept} of {} lines", lines.len()));
                let aside = self.out().join(".older");
                fs::write(&aside, lines[..kept].concat())?;
                fs::rename(&aside, &current)?;
            }
            Fault::OutputPutBack | Fault::OutputOlder => {
                // One from before a loss holds nothing of the journal that there is.
                let losses = self.past.losses;
                // An empty file says nothing: that is one that was emptied.
                let tells = |output: &Output| name == "table" || holds_a_line(&output.dir);
                let fits =
                    |output: &Output| (output.losses == losses) == (fault == Fault::OutputPutBack) && tells(output);
                let fitting: Vec<usize> =
                    (0..self.past.outputs.len()).filter(|at| fits(&self.past.outputs[*at])).collect();
                if fitting.is_empty() {
                    return Ok(());
                }
                let held = &self.past.outputs[*self.dice.pick(&fitting)];
                stage.struck(fault, format_args!("{name} to {} rows", held.table.lines.len()));
                if name == "table" {
                    self.place.outputs.table.replace(held.table.clone());
                } else {
                    let out = self.out();
                    fs::remove_dir_all(&out)?;
                    copy(&held.dir, &out)?;
                }
            }
            _ => {
                stage.struck(fault, format_args!("{name}"));
                let out = self.out();
                self.consumers.move_away(name, &self.place, &out).map_err(io::Error::other)?;
                if self.past.turned || self.past.losses > 0 {
                    self.consumers.unordered.insert(name);
                }
            }
        }
        self.consumers.tampered.insert(name);
        Ok(())
    }

    /// Another decklog begins with a copy of the journal, beside this one.
    async fn share(&mut self) {
        if self.past.twin.is_some() || self.life.is_none() {
            return;
        }
        self.past.copies += 1;
        let state = self.dir.path().join(format!("twin-{}", self.past.copies));
        if let Err(error) = copy(&self.state(), &state) {
            return self.stage().fail(format!("the journal cannot be copied: {error}"));
        }
        self.stage().struck(Fault::SharedByCopies, format_args!(""));
        (self.consumers.may_halt, self.consumers.shared) = (true, true);
        let until = Instant::now() + self.dice.millis(10_000, 120_000);
        self.past.twin = Some(Twin { life: None, state, until });
        self.start_twin().await;
    }

    async fn start_twin(&mut self) {
        let out = self.out();
        let Some(twin) = &mut self.past.twin else { return };
        match Life::begin(&self.place, &twin.state, &out, BadDisk::default()).await {
            Ok(life) => twin.life = Some(life),
            Err((why, _)) => self.place.stage.fail(format!("the other decklog does not start: {why}")),
        }
    }

    /// The other decklog ends, and what it left is judged as what any leaves.
    pub async fn end_twin(&mut self) {
        let Some(Twin { life, state, .. }) = self.past.twin.take() else { return };
        if let Some(life) = life {
            self.stage().note(format_args!("the other decklog ends"));
            if self.dice.percent(50) {
                if let Err(why) = life.stop().await {
                    self.stage().fail(format!("the other decklog does not stop well: {why}"));
                }
            } else {
                life.bury().await;
            }
        }
        let out = self.out();
        match Log::read(&state, Log::default()) {
            Ok(log) => {
                for problem in self.consumers.life_ended(&log, &self.place, &state, &out) {
                    self.stage().fail(format!("of the other decklog: {problem}"));
                }
            }
            Err(error) => self.stage().fail(error),
        }
        if let Err(error) = fs::remove_dir_all(state) {
            self.stage().fail(format!("a copy cannot be removed: {error}"));
        }
    }

    /// All sinks but two hang from the first start on.
    pub fn hang(&mut self) {
        for name in self.place.setup.sinks().iter().filter(|name| name.starts_with("dead")) {
            self.place.outputs.gate(name).shut(Behind::Silence, CONVERGES * 100);
        }
        self.place.stage.struck(Fault::OutputHangs, format_args!("{:?}", self.place.setup.sinks()));
    }

    /// Two sinks of one decklog have one output.
    pub fn share_among_sinks(&mut self) {
        if self.stage().enables(Fault::SharedBySinks) {
            self.stage().struck(Fault::SharedBySinks, format_args!("{:?}", self.place.setup.sinks()));
            self.consumers.may_halt = true;
        }
    }

    /// The operator gives each output to one alone.
    pub fn share_no_more(&mut self) {
        self.place.setup.sinks.retain(|name| name != "table-too");
    }

    /// An operator does what halted sinks ask for, where they may ask for it.
    pub fn operate(&mut self, late: &str) {
        self.place.receiver.mend();
        let Some(life) = &self.life else { return };
        if !late.contains("halted") {
            return;
        }
        if self.place.setup.has_receivers() {
            return life.reopen();
        }
        let (state, out) = (self.state(), self.out());
        let rows = consumers::rows(&state).unwrap_or_default();
        let mut moved = Vec::new();
        let sinks = self.place.setup.sinks();
        for row in rows.iter().filter(|row| row.state.word() == "halted" && sinks.contains(&row.name)) {
            let name = consumers::output_of(&row.name);
            if !self.consumers.may_halt {
                return self.place.stage.fail(format!("{} has halted: {}", row.name, row.state.detail()));
            }
            if let Some(name) = name.filter(|name| !moved.contains(name)) {
                self.place.stage.note(format_args!("the operator moves {name} away"));
                moved.push(name);
                if let Err(error) = self.consumers.move_away(name, &self.place, &out) {
                    return self.place.stage.fail(error);
                }
            }
        }
        life.reopen();
    }

    /// How soon healthy sinks had something, and how soon anything was read.
    pub fn judge_start(&self) {
        /// All outputs are asked at once, and not for longer than this, before the cluster is read.
        const START: Duration = Duration::from_secs(2);
        /// A healthy sink has its first entry this long after it is on disk.
        const FIRST: Duration = Duration::from_secs(1);
        let stage = self.stage();
        let Some(start) = stage.when("start") else { return };
        // Who is told to stop does not begin any more.
        let end = stage.when("stop").unwrap_or_else(Instant::now);
        let asked = stage.when("asked").unwrap_or(end);
        if asked - start > START {
            stage.fail(format!("the cluster is read {:?} after the start", asked - start));
        }
        let Some(head) = stage.when("head") else { return };
        for name in ["file", "plain"] {
            let first = stage.when(name).unwrap_or(end);
            if first > head + FIRST {
                stage.fail(format!("the first entry comes to {name} {:?} after it is on disk", first - head));
            }
        }
    }

    /// The API server is away for long, and once it is back every source watches again soon.
    pub async fn outage(&mut self) {
        /// This long after the API server is ready every source watches.
        const BACK: Duration = Duration::from_secs(2);
        let stage = Arc::clone(self.stage());
        let sources = self.sources();
        // Only who was well before can be well soon after.
        if self.life.is_none() || self.place.network.watching().len() < sources {
            return;
        }
        stage.struck(Fault::LongOutage, format_args!(""));
        self.place.network.down();
        let pause = match self.dice.roll(3) {
            0 => self.dice.millis(5_000, 20_000),
            1 => self.dice.millis(20_000, 90_000),
            _ => self.dice.millis(90_000, 900_000),
        };
        self.pass(pause).await;
        // An answer may have been on its way, and silence counts from twenty seconds.
        let silent = self.life.as_ref().map(|life| life.sources.silent_since().is_some());
        if silent == Some(false) && pause > Duration::from_secs(30) {
            stage.fail(format!("nobody says that the API server is silent after {pause:?}"));
        }
        self.place.network.up();
        self.pass(BACK).await;
        let watching = self.place.network.watching();
        if watching.len() < sources {
            stage.fail(format!("{BACK:?} after an outage of {pause:?} only {watching:?} of {sources} sources watch"));
        }
    }

    /// Every source has an object at the limit of etcd at the same time, while the disk stands still.
    pub async fn at_limit(&mut self) {
        /// What is read and not on disk yet, over all sources.
        const HELD: u64 = 48 << 20;
        /// As large as etcd takes it, and so does the API server.
        const LIMIT: usize = 1_500_000;
        let stage = Arc::clone(self.stage());
        self.past.scoped = true;
        self.pass(Duration::from_secs(30)).await;
        let large = stage.enables(Fault::AtLimit);
        if large {
            stage.struck(Fault::AtLimit, format_args!("in {} sources", self.sources()));
        }
        stage.stall(Duration::from_secs(60));
        let before = self.place.network.taken();
        let text = "x".repeat(if large { LIMIT - 1000 } else { 1000 });
        for namespace in self.place.setup.namespaces.iter().flatten() {
            let object = format!(r#"{{"metadata":{{"name":"l","namespace":"{namespace}"}},"data":{{"x":"{text}"}}}}"#);
            let created =
                sim::Object::parse(object.as_bytes()).and_then(|object| self.sim.create("configmaps", object));
            if let Err(refusal) = created {
                stage.fail(format!("no large object can be made: {refusal}"));
            }
        }
        self.pass(Duration::from_secs(50)).await;
        let held = self.place.network.taken() - before;
        stage.note(format_args!("{held} bytes are held"));
        if held > HELD {
            stage.fail(format!("{held} bytes are read and not on disk, more than {HELD}"));
        }
    }

    /// Much happens in a short time.
    pub async fn burst(&mut self) {
        for _ in 0..250 {
            self.world.step();
            self.pass(Duration::from_millis(12)).await;
            if !self.stage().failures().is_empty() {
                return;
            }
        }
    }

    /// The label selector of the configuration comes or goes.
    pub async fn select(&mut self) {
        let selector = !self.place.setup.selector;
        self.place.setup.selector = selector;
        self.past.scoped = true;
        self.stage().struck(Fault::Selector, format_args!("{selector}"));
        for resource in super::WATCHED {
            self.stage().may_lose(resource, "scope");
        }
        if let Some(life) = &self.life {
            life.reload(&self.place.setup).await;
        }
    }

    /// Whether versions have an order, and scopes have stayed: then the whole log can be compared with the history.
    pub fn is_comparable(&self) -> bool {
        !self.past.scoped
    }
}

/// Whether any file of a directory has a line.
fn holds_a_line(dir: &Path) -> bool {
    judges::written(dir).is_ok_and(|files| files.iter().any(|text| text.contains('\n')))
}
