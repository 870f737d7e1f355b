//! Standing by: the journal follows the shared log, and keeps what its own watches bring beyond that, until it leads.

mod promote;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rusqlite::Connection;
use tokio::time::Instant;

use super::backlog::{KEEP, Standby, insert, insert_bookmark, keep_rows, keep_unread, position};
use super::changeset;
use super::queue::{Command, OfSource, Open, Queue, Queued, Reply, Woken};
use super::sharing::Place;
use super::unit::{self, Head};
use super::{Facts, Writer, micros, sql};
use crate::core::model::{Checkpoint, Seq};
use crate::core::runtime;
use crate::core::shared_log::{Base, Extent, LogError, Numbered, PART_BYTES, SharedLog};
use crate::journal::error::Result;
use crate::journal::{JournalError, SourceId, SourceMemory, SourceSpec, WatchChange};

/// Interval at which a base in the place of missing units is looked for.
const BASE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Number of commands that are kept in one transaction.
const GROUP: usize = 256;

/// Reason why a wait of a standby ended.
enum Next {
    Ended,
    Led,
}

/// An answer that is given once the transaction is durable.
type Later = Box<dyn FnOnce() + Send>;

impl Writer {
    /// Follows the shared log until this journal leads, or every handle is gone. Says whether it leads.
    pub(super) async fn stand_by(&mut self, queue: &mut Queue) -> Result<bool> {
        let mut standby = Standby::default();
        let mut looked: Option<Instant> = None;
        loop {
            // What the engine has, as long as it has more.
            let mut more = false;
            if looked.is_none_or(|at| at.elapsed() >= BASE_POLL_INTERVAL) {
                match self.stay_on(&mut standby, queue).await? {
                    Some(true) => looked = Some(Instant::now()),
                    Some(false) => {}
                    None => return Ok(false),
                }
            }
            if looked.is_some() {
                match self.read_on(&mut standby, queue).await? {
                    Read::Applied => more = true,
                    Read::Nothing | Read::Failed => {}
                    Read::Ended => return Ok(false),
                }
            }
            if more {
                continue;
            }
            let poll = self.link.as_ref().map_or(BASE_POLL_INTERVAL, |link| link.poll);
            match self.serve(&mut standby, queue, poll).await? {
                Some(Next::Ended) => return Ok(false),
                Some(Next::Led) => return Ok(true),
                None => {}
            }
        }
    }

    /// Serves what waits, for so long. None: the time is over.
    async fn serve(&mut self, standby: &mut Standby, queue: &mut Queue, limit: Duration) -> Result<Option<Next>> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match queue.wait(Open { sources: true, control: true }, left).await {
                Woken::Ended => return Ok(Some(Next::Ended)),
                Woken::Elapsed => return Ok(None),
                Woken::Command(Queued { command: Command::Lead(reply), .. }) => {
                    match self.promote(standby, queue).await? {
                        Ok(()) => {
                            reply.send(Ok(()));
                            return Ok(Some(Next::Led));
                        }
                        Err(why) => reply.send(Err(why)),
                    }
                }
                Woken::Command(first) => self.keep(standby, first, queue)?,
            }
        }
    }

    /// Waits for the engine, and serves what comes meanwhile. None: every handle is gone.
    async fn ask<T>(
        &mut self,
        standby: &mut Standby,
        queue: &mut Queue,
        question: impl FnOnce(&mut dyn SharedLog) -> BoxFuture<'_, Result<T, LogError>>,
    ) -> Result<Option<Result<T, LogError>>> {
        let Some(mut log) = self.link.as_mut().and_then(|link| link.log.take()) else { return Ok(None) };
        let answer = {
            let mut asking = question(&mut *log);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut asking => break Some(answer),
                    woken = queue.wait(Open { sources: true, control: true }, BASE_POLL_INTERVAL) => match woken {
                        Woken::Ended => break None,
                        Woken::Elapsed => {}
                        Woken::Command(Queued { command: Command::Lead(reply), .. }) => {
                            reply.send(Err("the shared log is being read".to_owned()));
                        }
                        Woken::Command(first) => self.keep(standby, first, queue)?,
                    }
                }
            }
        };
        if let Some(link) = &mut self.link {
            link.log = Some(log);
        }
        Ok(answer.map(|answer| match &self.link {
            Some(link) => link.answered(answer),
            None => answer,
        }))
    }

    /// Makes sure that the shared log goes on where this journal ends. Says whether that is so; none where every handle is
    /// gone.
    async fn stay_on(&mut self, standby: &mut Standby, queue: &mut Queue) -> Result<Option<bool>> {
        let Some(answer) = self.ask(standby, queue, |log| log.extent()).await? else { return Ok(None) };
        let Ok(extent) = answer else { return Ok(Some(false)) };
        if let Some(link) = &self.link {
            link.change(|state| state.newest = extent.newest.max(state.number));
        }
        match self.stands(&extent)? {
            // It has more than the engine: that is of another history, where somebody has led since.
            Stands::On if self.number() > extent.newest => {
                let Ok(term) = self.newest_term().await else { return Ok(Some(false)) };
                let own = self.link.as_ref().map_or(0, |link| link.place.term);
                match extent.bases.last().filter(|_| term > own) {
                    Some(base) => self.load(standby, queue, *base).await,
                    None => Ok(Some(true)),
                }
            }
            Stands::On => {
                // What was missing is given up where what came behind it is gone too.
                if let Some(link) = &self.link {
                    link.change(|state| state.missing = None);
                }
                Ok(Some(true))
            }
            Stands::Off(base) => self.load(standby, queue, base).await,
            Stands::Behind => match self.read_on(standby, queue).await? {
                Read::Ended => Ok(None),
                Read::Failed => Ok(Some(false)),
                Read::Applied => Ok(Some(true)),
                // What comes next is gone: a base stands in its place.
                Read::Nothing => match extent.bases.last().filter(|base| base.number > self.number()) {
                    Some(base) => self.load(standby, queue, *base).await,
                    None => {
                        self.misses(extent.newest);
                        Ok(Some(true))
                    }
                },
            },
        }
    }

    fn number(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.place.number)
    }

    /// Compares this journal's position with the engine's extent.
    fn stands(&self, extent: &Extent) -> Result<Stands> {
        let Some(link) = &self.link else { return Ok(Stands::On) };
        let own = &link.place;
        let Some(base) = extent.bases.last() else { return Ok(Stands::On) };
        if own.digest.is_empty() && self.committed.head > 0 {
            return Err(JournalError::Foreign(format!(
                "the state directory {} holds a log of its own, and the shared log in {} another one; move the directory away, and this decklog follows the shared log",
                self.dir.display(),
                link.shown
            )));
        }
        Ok(if own.number == 0 {
            Stands::Off(*base)
        } else if extent.newest > own.number {
            Stands::Behind
        } else {
            Stands::On
        })
    }

    /// Reads what follows.
    async fn read_on(&mut self, standby: &mut Standby, queue: &mut Queue) -> Result<Read> {
        let after = self.number();
        let asked = self.ask(standby, queue, |log| log.read(after, PART_BYTES)).await?;
        let Some(answer) = asked else { return Ok(Read::Ended) };
        let Ok(units) = answer else { return Ok(Read::Failed) };
        if units.is_empty() {
            self.caught_up()?;
            return Ok(Read::Nothing);
        }
        if let Applied::Done = self.apply(standby, &units)? {
            return Ok(Read::Applied);
        }
        let Some(answer) = self.ask(standby, queue, |log| log.extent()).await? else {
            return Ok(Read::Ended);
        };
        let Some(base) = answer.ok().and_then(|extent| extent.bases.last().copied()) else { return Ok(Read::Failed) };
        let astray = (self.number(), base.number);
        if self.link.as_mut().and_then(|link| link.astray.replace(astray)) == Some(astray) {
            // Built from this very base it came to the same: what follows does not follow.
            self.misses(astray.0 + 1);
            return Ok(Read::Failed);
        }
        tracing::warn!("this journal is not what the shared log has: it is built from the newest base");
        Ok(match self.load(standby, queue, base).await? {
            Some(true) => Read::Applied,
            Some(false) => Read::Failed,
            None => Read::Ended,
        })
    }

    /// Records that the next unit is in no unit and no base, although later units exist.
    fn misses(&self, newest: u64) {
        let Some(link) = &self.link else { return };
        let missing = link.place.number + 1;
        if link.state.borrow().missing != Some(missing) {
            tracing::error!(
                "the shared log in {} has unit {newest} and not unit {missing}: something was deleted there; until a base comes after it, this decklog cannot take over",
                link.shown
            );
        }
        link.change(|state| state.missing = Some(missing));
    }

    fn caught_up(&mut self) -> Result {
        if let Some(link) = &self.link {
            let now = runtime::now();
            link.change(|state| {
                if state.missing.is_none() && state.newest <= state.number {
                    state.caught_up = Some(now);
                }
            });
            let state = link.state.borrow();
            if state.missing.is_some() || state.newest > state.number {
                return Ok(());
            }
        }
        self.judge_apart()
    }

    /// Takes units over, in one transaction.
    fn apply(&mut self, standby: &mut Standby, units: &[Numbered]) -> Result<Applied> {
        let Some(link) = &mut self.link else { return Ok(Applied::Done) };
        let mut place = link.place.clone();
        let mut newest: Option<Head> = None;
        self.disk.conn.execute_batch("BEGIN IMMEDIATE").map_err(sql("begin to write"))?;
        let mut put = || {
            for Numbered { number, bytes } in units {
                let (head, rows) = unit::decode(bytes, self.disk.codec())?;
                let tables = link.tables_of(&head)?;
                if *number != place.number + 1 || head.previous != place.digest || head.begins {
                    return Ok(Applied::Astray);
                }
                rows.put(&self.disk.conn, tables)?;
                place = Place { number: *number, digest: unit::digest(bytes), term: head.term };
                newest = Some(head);
            }
            place.write(&self.disk.conn)?;
            standby.prune(&self.disk.conn)?;
            Ok(Applied::Done)
        };
        match put() {
            Ok(Applied::Done) => {}
            other => {
                self.disk.conn.execute_batch("ROLLBACK").map_err(sql("end a transaction"))?;
                return other;
            }
        }
        // What the triggers noted is of the leader.
        changeset::forget(&self.disk.conn, &link.tables)?;
        self.disk.conn.execute_batch("COMMIT").map_err(sql("commit"))?;
        link.place = place;
        self.refresh(standby)?;
        standby.answer_waiting(&self.disk.conn)?;
        if let Some((head, link)) = newest.zip(self.link.as_ref()) {
            let (number, backlog) = (link.place.number, standby.bytes);
            link.change(|state| {
                (state.number, state.term, state.backlog, state.missing) = (number, head.term, backlog, None);
                state.newest = state.newest.max(number);
                state.leader.clone_from(&head.leader);
            });
        }
        Ok(Applied::Done)
    }

    /// Reads the writer's state of the journal again.
    fn refresh(&mut self, standby: &Standby) -> Result {
        let facts = Facts::read(&self.disk.conn)?;
        if let Some(cluster) = &standby.cluster
            && !facts.cluster.uid.is_empty()
            && !cluster.uid.is_empty()
            && facts.cluster.uid != cluster.uid
        {
            return Err(JournalError::OtherCluster { ours: facts.cluster.uid, theirs: cluster.uid.clone() });
        }
        let head = Seq(facts.head);
        *self.epoch.write().unwrap_or_else(std::sync::PoisonError::into_inner) = facts.epoch.clone();
        self.committed = facts.committed();
        self.disk.recent.set_log_start(self.committed.log_start);
        self.visible.send_if_modified(|seen| std::mem::replace(seen, head) != head);
        self.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Builds the journal from a base. Says whether that was done; none where every handle is gone.
    async fn load(&mut self, standby: &mut Standby, queue: &mut Queue, base: Base) -> Result<Option<bool>> {
        tracing::info!(unit = base.number, parts = base.parts, "the journal is built from a base of the shared log");
        self.set_apart(base)?;
        // Until it is whole it has no place, and the next start builds it again.
        let Some(link) = &mut self.link else { return Ok(None) };
        link.place = Place::default();
        let tables = link.tables.clone();
        let within = |conn: &Connection, work: &mut dyn FnMut() -> Result| {
            conn.execute_batch("BEGIN IMMEDIATE").map_err(sql("begin to write"))?;
            let done = work().and_then(|()| changeset::forget(conn, &tables));
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = conn.execute_batch(end).map_err(sql("commit"));
            done.and(ended)
        };
        {
            let conn = &self.disk.conn;
            within(conn, &mut || {
                changeset::clear(conn, &tables)?;
                conn.execute("DELETE FROM backlog", []).map_err(sql(KEEP))?;
                // Not empty, so that what is there is not taken for a log of its own.
                Place { digest: "loading".to_owned(), ..Place::default() }.write(conn)
            })?;
        }
        standby.ahead.clear();
        standby.bytes = 0;
        let (mut digest, mut term) = (String::new(), 0);
        for part in 0..base.parts {
            let asked = self.ask(standby, queue, |log| log.part(base.number, part)).await?;
            let Some(answer) = asked else { return Ok(None) };
            let Ok(bytes) = answer else {
                self.place_again()?;
                return Ok(Some(false));
            };
            let (head, rows) = unit::decode(&bytes, self.disk.codec())?;
            let Some(link) = &mut self.link else { return Ok(None) };
            let of_then = link.tables_of(&head)?;
            (digest, term) = (head.previous, head.term);
            let conn = &self.disk.conn;
            within(conn, &mut || rows.put(conn, of_then))?;
            self.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let place = Place { number: base.number, digest, term };
        {
            let conn = &self.disk.conn;
            within(conn, &mut || place.write(conn))?;
        }
        if let Some(link) = &mut self.link {
            link.place = place;
        }
        self.disk.forget();
        self.refresh(standby)?;
        standby.answer_waiting(&self.disk.conn)?;
        if let Some(link) = &self.link {
            link.change(|state| (state.number, state.term, state.missing) = (base.number, term, None));
        }
        if standby.specs.iter().any(|(_, id)| *id != 0) {
            // What its watches brought until now went with the journal that there was, and they know that one's sources.
            return Err(JournalError::Superseded(
                "the journal was built again from a base of the shared log".to_owned(),
            ));
        }
        Ok(Some(true))
    }

    /// Takes the place that the database has.
    fn place_again(&mut self) -> Result {
        let place = Place::read(&self.disk.conn)?.unwrap_or_default();
        if let Some(link) = &mut self.link {
            link.place = place;
        }
        Ok(())
    }

    /// Notes a source for the time when it leads.
    fn register_ahead(
        &self,
        standby: &mut Standby,
        spec: &SourceSpec,
        reply: &Reply<(SourceId, SourceMemory)>,
        answers: &mut Vec<Later>,
    ) -> Result {
        let conn = &self.disk.conn;
        let found = position(conn, spec)?;
        let (id, checkpoint) = found.unwrap_or_else(|| (0, Checkpoint::default()));
        standby.specs.retain(|(known, _)| (&known.resource, &known.namespace) != (&spec.resource, &spec.namespace));
        standby.specs.push((spec.clone(), id));
        let dropped = standby.drop_of(conn, id, false);
        if id != 0 {
            standby.ahead.entry(id).or_default().lost = false;
        }
        self.inconsistent.send_if_modified(|sources| sources.remove(&SourceId(id)));
        let (reply, memory) = (reply.clone(), SourceMemory { checkpoint, why: None });
        answers.push(Box::new(move || reply.send((SourceId(id), memory))));
        dropped
    }

    /// Takes one command in a transaction that is open: keeps what is a change, and notes what is answered after the commit.
    fn take(
        &mut self,
        standby: &mut Standby,
        queued: &Queued,
        taken: &mut Vec<(i64, usize)>,
        answers: &mut Vec<Later>,
    ) -> Result {
        let (conn, at) = (&self.disk.conn, queued.at);
        match &queued.command {
            Command::Source(SourceId(id), OfSource::Changes(changes)) => {
                taken.push((*id, changes.len()));
                let mut each = |change: &WatchChange| insert(conn, &mut self.codec, *id, at, change);
                keep_rows(standby, *id, changes.iter().map(|change| (&change.object.version, each(change))))
            }
            Command::Source(SourceId(id), OfSource::Unread(verb, object)) => {
                keep_unread(conn, standby, *id, at, *verb, object)
            }
            Command::Source(SourceId(id), OfSource::Bookmark(version)) => {
                keep_rows(standby, *id, [(version, insert_bookmark(conn, *id, at, version))].into_iter())
            }
            Command::Source(SourceId(id), OfSource::Report(state)) => {
                standby.states.insert(*id, state.clone());
                Ok(())
            }
            Command::Source(..)
            | Command::Sink(..)
            | Command::Resources(_)
            | Command::Requests(_)
            | Command::AuditLog(_)
            | Command::Evidence(_)
            | Command::Outline(..)
            | Command::Bounds(_) => Ok(()),
            Command::Register(spec, reply) => self.register_ahead(standby, spec, reply, answers),
            Command::Await(spec, had, reply) => {
                standby.waiting.push((spec.clone(), had.clone(), reply.clone()));
                standby.answer_waiting(conn)
            }
            Command::Cluster(cluster, reply) => {
                let ours = &self.committed.cluster.uid;
                let other = !ours.is_empty() && !cluster.uid.is_empty() && *ours != cluster.uid;
                let result = match other {
                    true => Err(JournalError::OtherCluster { ours: ours.clone(), theirs: cluster.uid.clone() }),
                    false => Ok(()),
                };
                standby.cluster = Some(cluster.clone());
                let reply = reply.clone();
                answers.push(Box::new(move || reply.send(result)));
                Ok(())
            }
            Command::Redaction(redactor) => {
                standby.redactor = Some(Arc::clone(redactor));
                Ok(())
            }
            Command::Narrow(reply) => {
                standby.narrows = true;
                let reply = reply.clone();
                answers.push(Box::new(move || reply.send(())));
                Ok(())
            }
            Command::Flush(reply) | Command::Ping(reply) => {
                let reply = reply.clone();
                answers.push(Box::new(move || reply.send(())));
                Ok(())
            }
            Command::Mark(marks, reply) => {
                let reply = reply.clone();
                answers.push(Box::new(move || reply.send(())));
                super::note_mark(conn, marks)
            }
            // The epoch is that of the shared log, and dead letters are settled by the leader.
            Command::Epoch(..) | Command::Settle(..) => Ok(()),
            // It is not taken here.
            Command::Lead(reply) => {
                let reply = reply.clone();
                answers.push(Box::new(move || reply.send(Err("others wait before".to_owned()))));
                Ok(())
            }
        }
    }

    /// Keeps a command beside the journal, or records it for the time when it leads.
    fn keep(&mut self, standby: &mut Standby, first: Queued, queue: &mut Queue) -> Result {
        self.disk.conn.execute_batch("BEGIN IMMEDIATE").map_err(sql("begin to write"))?;
        let mut taken = Vec::new();
        let mut answers: Vec<Later> = Vec::new();
        let mut next = Some(first);
        let mut overflows = 0;
        let result = loop {
            let Some(queued) = next else { break Ok(()) };
            let kept = self.take(standby, &queued, &mut taken, &mut answers);
            if let Err(error) = kept {
                break Err(error);
            }
            let limit = self.link.as_ref().map_or(u64::MAX, |link| link.backlog_limit);
            while standby.bytes > limit {
                // The one with the most has the least chance to be of use.
                let Some(id) = standby.ahead.iter().max_by_key(|(_, ahead)| ahead.bytes).map(|(id, _)| *id) else {
                    break;
                };
                standby.drop_of(&self.disk.conn, id, true)?;
                self.inconsistent.send_if_modified(|sources| sources.insert(SourceId(id)));
                overflows += 1;
            }
            next = if taken.len() < GROUP { queue.take(Open { sources: true, control: false }) } else { None };
        };
        if let Err(error) = result {
            self.disk.conn.execute_batch("ROLLBACK").map_err(sql("end a transaction"))?;
            return Err(error);
        }
        // A mark is no row that travels; nothing else was touched that does.
        self.disk.conn.execute_batch("COMMIT").map_err(sql("commit"))?;
        if let Some(link) = &self.link {
            let backlog = standby.bytes;
            link.change(|state| {
                state.backlog = backlog;
                state.overflows += overflows;
            });
        }
        for (id, changes) in taken {
            self.waiting.subtract(SourceId(id), changes);
        }
        self.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for answer in answers {
            answer();
        }
        Ok(())
    }
}

/// Result of an attempt to read on.
enum Read {
    /// Units were read and applied to the journal.
    Applied,
    /// There is nothing more.
    Nothing,
    /// The engine did not answer.
    Failed,
    /// Every handle is gone.
    Ended,
}

/// Relation of the journal to the engine's contents.
enum Stands {
    /// It has all that there is.
    On,
    /// There is more.
    Behind,
    /// It does not, and has to be built from this base.
    Off(Base),
}

enum Applied {
    Done,
    /// The next unit does not follow this journal.
    Astray,
}
