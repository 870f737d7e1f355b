//! Trouble that no request has to be there for: crashes and stops, servers that restart, forget or are put back.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use decklog::sim::objects;
use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::Instant;

use super::faults::Fault;
use super::{CONVERGES, Run, copy, judges};
use crate::world::{WATCHED, WIDGETS};

impl Run {
    /// Nothing of decklog goes on, and nothing is cleaned up: what is on disk at this moment is all that is left.
    pub(super) async fn crash(&mut self) {
        // It would be left at a directory that is no more.
        self.end_twin().await;
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        stage.struck(Fault::Crash, format_args!("life {}", self.lives));
        stage.moment("stop");
        life.kill();
        let (state, out) = (self.state(), self.out());
        self.generation += 1;
        let copied = copy(&state, &self.state()).and_then(|()| copy(&out, &self.out()));
        life.bury().await;
        let removed = fs::remove_dir_all(state).and_then(|()| fs::remove_dir_all(out));
        if let Err(error) = copied.and(removed) {
            stage.fail(format!("the directories cannot be copied: {error}"));
        }
        if stage.enables(Fault::TornTail)
            && self.dice.percent(50)
            && let Err(error) = self.tear()
        {
            stage.fail(format!("the file cannot be torn: {error}"));
        }
        self.judge_what_is_left();
        self.rest();
    }

    /// What was written and not acknowledged may be there in part.
    fn tear(&mut self) -> Result<(), String> {
        let cursor = judges::cursors(&self.state())?.get("file").copied().unwrap_or(0);
        let epoch = decklog::journal::Reader::open(&self.state())
            .and_then(|reader| reader.epoch())
            .map_err(|error| error.to_string())?;
        let path = self.out().join("events.jsonl");
        let say = |error: io::Error| error.to_string();
        let Ok(text) = fs::read(&path) else { return Ok(()) };
        let mut kept = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let entry = serde_json::from_slice::<Value>(line).ok();
            // What another journal wrote was synced then.
            if entry.is_none_or(|entry| entry["epoch"] == epoch && entry["seq"].as_u64() > Some(cursor)) {
                break;
            }
            kept += line.len();
        }
        if kept < text.len() && !self.past.turned {
            let length = self.dice.between(kept, text.len());
            fs::write(&path, &text[..length]).map_err(say)?;
        } else if !text.is_empty() && !text.ends_with(b"\n") {
            // Nothing was written since the last time.
            return Ok(());
        } else {
            // The beginning of a line that decklog was about to write.
            let mut torn = text;
            torn.extend_from_slice(&br#"{"v":1,"seq":12345,"epoch""#[..self.dice.between(1, 20)]);
            fs::write(&path, torn).map_err(say)?;
        }
        self.stage().struck(Fault::TornTail, format_args!("after seq {cursor}"));
        Ok(())
    }

    pub(super) async fn stop(&mut self) {
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        stage.struck(Fault::Stop, format_args!("life {}", self.lives));
        stage.moment("stop");
        let failed = Arc::clone(&life.disk_failed);
        if let Err(why) = life.stop().await
            && !failed.load(std::sync::atomic::Ordering::Relaxed)
        {
            stage.fail(format!("decklog does not stop well: {why}"));
        }
        self.judge_what_is_left();
        self.rest();
    }

    /// Something goes wrong that no request has to be there for.
    pub(super) async fn trouble(&mut self) {
        const TROUBLE: [Fault; 15] = [
            Fault::Compaction,
            Fault::Forgets,
            Fault::Restart,
            Fault::RestartEmpty,
            Fault::Rollback,
            Fault::Undefined,
            Fault::Redefined,
            Fault::Crash,
            Fault::Crash,
            Fault::Stop,
            Fault::ClockBack,
            Fault::ClockForward,
            Fault::MovedAway,
            Fault::LongOutage,
            Fault::Selector,
        ];
        let possible: Vec<Fault> = TROUBLE.into_iter().filter(|fault| self.stage().enables(*fault)).collect();
        if possible.is_empty() {
            return;
        }
        let stage = Arc::clone(self.stage());
        match *self.dice.pick(&possible) {
            Fault::Compaction => {
                stage.struck(Fault::Compaction, format_args!("at {}", self.sim.revision()));
                stage.compacts(self.sim.revision());
                self.sim.compact_all();
            }
            Fault::Forgets => {
                let resource = *self.dice.pick(&WATCHED);
                stage.struck(Fault::Forgets, format_args!("{resource} before {}", self.sim.revision()));
                self.sim.expire_watch_history(resource, self.sim.revision());
            }
            Fault::Restart => {
                stage.struck(Fault::Restart, format_args!(""));
                self.place.network.down();
                let pause = self.dice.millis(0, 20_000);
                self.pass(pause).await;
                self.place.network.up();
            }
            Fault::RestartEmpty => self.restart_empty().await,
            Fault::Rollback => self.roll_back().await,
            Fault::LongOutage => self.outage().await,
            Fault::Selector => self.select().await,
            fault @ (Fault::Undefined | Fault::Redefined) if self.redefine.is_none() => {
                stage.struck(fault, format_args!("at {}", self.sim.revision()));
                stage.may_lose(WIDGETS, "scope");
                if let Err(refusal) = self.sim.undefine(WIDGETS) {
                    stage.fail(format!("widgets cannot be undefined: {refusal}"));
                }
                self.defined = self.sim.revision();
                let gone = if fault == Fault::Undefined { (20_000, 200_000) } else { (0, 3000) };
                self.redefine = Some(Instant::now() + self.dice.millis(gone.0, gone.1));
                self.world.look_again();
            }
            Fault::Crash => {
                // In the middle of what is going on.
                for _ in 0..self.dice.roll(150) {
                    tokio::task::yield_now().await;
                }
                self.crash().await;
            }
            Fault::Stop => self.stop().await,
            Fault::ClockBack => {
                stage.struck(Fault::ClockBack, format_args!("by an hour"));
                self.clock_was_set_back = true;
                self.simulation.jump(SignedDuration::from_hours(-1));
            }
            Fault::ClockForward => {
                stage.struck(Fault::ClockForward, format_args!("by a year"));
                self.simulation.jump(SignedDuration::from_hours(365 * 24));
            }
            Fault::MovedAway => {
                let path = self.out().join("events.jsonl");
                if fs::metadata(&path).is_ok_and(|meta| meta.len() > 0) {
                    self.moved += 1;
                    stage.struck(Fault::MovedAway, format_args!("to .{}", self.moved));
                    if let Err(error) = fs::rename(&path, self.out().join(format!("events.jsonl.{}", self.moved))) {
                        stage.fail(format!("the file cannot be moved: {error}"));
                    }
                    if let Some(life) = &self.life {
                        life.reopen();
                    }
                }
            }
            _ => {}
        }
    }

    /// The API server starts again and remembers nothing, while others write through another one.
    async fn restart_empty(&mut self) {
        self.place.network.down();
        for _ in 0..self.dice.between(0, 40) {
            self.world.step();
        }
        let pause = self.dice.millis(0, 20_000);
        self.pass(pause).await;
        self.stage().struck(Fault::RestartEmpty, format_args!("at {}", self.sim.revision()));
        self.sim.restart_api_server();
        self.place.network.up();
    }

    pub(super) fn define(&mut self) {
        self.redefine = None;
        match self.sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])) {
            Ok(row) => self.defined = row.revision,
            Err(refusal) => self.stage().fail(format!("widgets cannot be defined: {refusal}")),
        }
        self.stage().note(format_args!("widgets are defined"));
    }

    /// etcd is put back from a backup, and nobody writes before decklog has seen it: whoever overtakes the old
    /// versions before anybody looks cannot be told from one who never went back.
    async fn roll_back(&mut self) {
        let (now, setup) = (self.sim.revision(), &self.place.setup);
        let oldest = self.defined.max(setup.started) + 1;
        if self.before.is_some() || self.redefine.is_some() || now <= oldest + 5 {
            return;
        }
        let stage = Arc::clone(self.stage());
        let to = now - self.dice.between(1, usize::try_from(now - oldest).unwrap_or(1).min(40)) as u64;
        stage.struck(Fault::Rollback, format_args!("from {now} to {to}"));
        for resource in WATCHED {
            stage.may_lose(resource, "rollback");
        }
        self.before = Some(self.sim.history());
        self.sim.restore(to);
        stage.restores(to);
        self.place.network.forget_before(to);
        self.world.look_again();
        let until = Instant::now() + CONVERGES;
        loop {
            self.pass(Duration::from_secs(10)).await;
            let positions = judges::positions(&self.state()).unwrap_or_default();
            let ahead = |position: &&judges::LogPosition| {
                position.active && position.applied.is_some_and(|applied| applied > to)
            };
            let late: Vec<&str> = positions.iter().filter(ahead).map(|position| position.name.as_str()).collect();
            let seen = positions.iter().filter(|position| position.active).count() > 0;
            if late.is_empty() && seen && self.life.is_some() {
                // What is handed over and not on disk has come there by then.
                self.pass(Duration::from_secs(60)).await;
                let positions = judges::positions(&self.state()).unwrap_or_default();
                if !positions.iter().any(|position| ahead(&position)) && self.life.is_some() {
                    return;
                }
            }
            if Instant::now() + CONVERGES * 2 / 3 > until {
                // In the worst weather no list of many pages comes to its end.
                stage.set_weather(5);
            }
            if Instant::now() > until || !stage.failures().is_empty() {
                return stage.fail(format!("a rollback is not noticed by {late:?}"));
            }
        }
    }
}
