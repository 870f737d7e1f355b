//! Verdicts over what a life has left, and over the whole run.

use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::class::Class;
use super::faults::Fault;
use super::judges::{self, Log};
use super::{EVERY, Outcome, QUESTIONED, Run};
use super::{moments, questions};

impl Run {
    /// At the end of each life: what is on disk is right, as far as it goes.
    pub(super) fn judge_what_is_left(&mut self) {
        let stage = Arc::clone(self.stage());
        let mut problems = Vec::new();
        match judges::cursors(&self.state()) {
            Ok(cursors) => self.place.receiver.life_ended(cursors.get("http").copied().unwrap_or(0)),
            Err(error) => problems.push(error),
        }
        let began = std::time::Instant::now();
        let before = std::mem::take(&mut self.log);
        match (Log::read(&self.state(), before), judges::positions(&self.state())) {
            (Ok(log), Ok(positions)) => {
                let (histories, setup) = (self.histories(), &self.place.setup);
                let back = self.clock_was_set_back;
                if self.is_comparable() {
                    problems.extend(judges::log_is_right_so_far(&log, &histories, setup, &positions, back));
                }
                if setup.class == Class::Starts {
                    self.judge_start();
                }
                problems.extend(self.consumers.life_ended(&log, &self.place, &self.state(), &self.out()));
                self.log = log;
            }
            (Err(error), _) | (_, Err(error)) => problems.push(error),
        }
        for problem in problems {
            stage.fail(format!("at the end of life {}: {problem}", self.lives));
        }
        self.judging += began.elapsed();
    }

    /// What the HTTP receiver and the collecting sink have is what they should have.
    fn receivers_have_everything(&self, log: &Log, state: &Path) -> Vec<String> {
        let (taken, refused) = self.place.receiver.taken();
        let mut problems = judges::http_has_everything(log, &taken, &refused, state);
        let collected = self.place.collected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend(judges::collected_is_the_filter(log, &collected));
        problems
    }

    pub(super) fn judge_everything(mut self) -> Outcome {
        let stage = Arc::clone(self.stage());
        let setup = self.place.setup.clone();
        let (state, out) = (self.state(), self.out());
        let mut outcome = Outcome {
            seed: self.seed,
            digest: 0,
            counts: stage.counts(),
            events: self.events(),
            entries: 0,
            gaps: 0,
            lives: self.lives,
            clean: setup.clean,
            class: setup.class,
            most: self.place.network.most(),
            judging: Duration::ZERO,
            took: stage.elapsed(),
            failures: Vec::new(),
        };
        let began = std::time::Instant::now();
        match Log::read(&state, std::mem::take(&mut self.log)) {
            Ok(log) if stage.failures().is_empty() => {
                let histories = self.histories();
                let back = self.clock_was_set_back;
                let mut problems = Vec::new();
                if self.is_comparable() {
                    let now = self.sim.revision();
                    problems.extend(judges::log_is_history(&log, &histories, &setup, now, back));
                    let (pick, ordered) = (self.seed / EVERY, !setup.enables(Fault::Opaque));
                    if pick.is_multiple_of(EVERY) && ordered {
                        problems.extend(judges::past_is_the_servers(&log, &histories, &state, &setup));
                    }
                    if self.seed.is_multiple_of(QUESTIONED) && ordered && !back && histories.before.is_none() {
                        self.life = None;
                        problems.extend(questions::answers_are_true(&log, &histories, &state, &setup, self.seed));
                    }
                }
                if self.is_comparable() && !back && !setup.enables(Fault::Opaque) {
                    problems.extend(moments::times_hold(&log, &histories));
                }
                if setup.class != Class::Large {
                    problems.extend(judges::objects_are_the_servers(&log, &histories));
                }
                // After a put-back reasons and heads are of different journals.
                if !self.past.turned && !setup.enables(Fault::Opaque) {
                    problems.extend(judges::gaps_are_justified(
                        &log,
                        &stage.reasons(),
                        &stage.compactions(),
                        !setup.enables(Fault::PagesDiffer),
                    ));
                }
                problems.extend(judges::replay_is_the_table(&log, &state, &self.sim, &setup));
                if setup.has_receivers() {
                    problems.extend(judges::file_is_exactly_once(&log, &out));
                    problems.extend(self.receivers_have_everything(&log, &state));
                } else {
                    problems.extend(self.consumers.judge(&log, &self.place, &out));
                }
                outcome.gaps = log.entries.iter().filter(|entry| entry.gap.is_some()).count();
                // What passes by itself may pass too late for what is asked of the past.
                let hit =
                    setup.enables(Fault::PagesDiffer) || stage.reasons().iter().any(|reason| reason.why == "exact");
                if setup.clean && outcome.gaps > 0 && !hit {
                    problems.push(format!("{} GAPs although nothing could be lost", outcome.gaps));
                }
                for problem in problems {
                    stage.fail(problem);
                }
                let rotated = fs::read_dir(&out).map_or(0, Iterator::count);
                if rotated > 1 + self.moved {
                    outcome.counts.add(Fault::Rotated, (rotated - 1 - self.moved) as u64);
                }
                outcome.entries = log.entries.len();
                outcome.digest = stage.digest(log.lines.join("\n").as_bytes());
            }
            Ok(_) => {}
            Err(error) => stage.fail(error),
        }
        outcome.judging = self.judging + began.elapsed();
        self.life = None;
        outcome.failures = stage.failures();
        if !outcome.failures.is_empty() && std::env::var_os("SIMULATE_KEEP").is_some() {
            self.dir.disable_cleanup(true);
            stage.note(format_args!("kept {}", self.dir.path().display()));
        }
        stage.note(format_args!("{} events, {} entries, {} gaps", outcome.events, outcome.entries, outcome.gaps));
        outcome
    }
}
