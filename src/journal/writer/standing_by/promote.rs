//! Promotion: a standby reads the shared log to its end and becomes the leader.

use super::{
    Command, Extent, Facts, JournalError, OfSource, Place, Queue, Queued, Read, Reply, Result, SourceId, Standby,
    Stands, Writer, micros, runtime, unit,
};

impl Writer {
    /// Takes over: keeps others out, reads to the end, says so in the log, and hands over what was kept. The inner error: why
    /// it does not.
    pub(super) async fn promote(&mut self, standby: &mut Standby, queue: &mut Queue) -> Result<Result<(), String>> {
        loop {
            let Some(link) = self.link.as_mut() else { return Ok(Err("it is not shared".to_owned())) };
            // Most engines do nothing here, so only a failure says something of them.
            if let Err(error) = link.log().fence().await {
                let why = error.to_string();
                drop(link.answered::<()>(Err(error)));
                return Ok(Err(why));
            }
            let extent = match self.read_to_end(standby, queue).await? {
                Ok(extent) => extent,
                Err(why) => return Ok(Err(why)),
            };
            if !extent.bases.is_empty() && !self.is_on(&extent).await {
                let Some(base) = extent.bases.last() else { continue };
                if self.load(standby, queue, *base).await? != Some(true) {
                    return Ok(Err("a base of the shared log cannot be read".to_owned()));
                }
                continue;
            }
            let Some(link) = &mut self.link else { return Ok(Err("it is not shared".to_owned())) };
            let (own, mut has_base) = (link.place.clone(), !extent.bases.is_empty());
            if own.number <= extent.newest {
                if !has_base {
                    // Whoever began this log did not come to its first base: nobody has seen anything of it.
                    link.place.number = extent.newest;
                }
            } else {
                tracing::warn!(
                    "the shared log in {} was restored to unit {}, and this journal has {}: it gets the rest again, as a base",
                    link.shown,
                    extent.newest,
                    own.number
                );
                match self.newest_term().await {
                    Ok(term) if term > own.term => {
                        let Some(base) = extent.bases.last() else { continue };
                        let loaded = self.load(standby, queue, *base).await? == Some(true);
                        return Ok(Err(
                            if loaded { "another decklog has led since" } else { "a base cannot be read" }.to_owned()
                        ));
                    }
                    Ok(_) => {}
                    Err(error) => return Ok(Err(error.to_string())),
                }
                self.store_base().await?;
                has_base = true;
            }
            self.judge_apart()?;
            self.know_bases(&extent.bases);
            let term = self.link.as_ref().map_or(0, |link| link.place.term) + 1;
            match self.take_lead(term, has_base).await {
                Ok(()) => break,
                // Somebody was faster: what they wrote is read, and then it is tried again where the Lease says so.
                Err(JournalError::Superseded(why)) => return Ok(Err(why)),
                Err(error) => return Err(error),
            }
        }
        tracing::info!(unit = self.link.as_ref().map(|link| link.place.number), "this decklog leads");
        self.start_leading(standby, queue)?;
        Ok(Ok(()))
    }

    /// Reads the shared log to its end, whatever it takes: what is read here is what the leader before has published. The inner
    /// error: why that is not possible.
    pub(super) async fn read_to_end(
        &mut self,
        standby: &mut Standby,
        queue: &mut Queue,
    ) -> Result<Result<Extent, String>> {
        loop {
            let extent = match self.link.as_mut() {
                Some(link) => {
                    let extent = link.log().extent().await;
                    link.answered(extent)
                }
                None => return Ok(Err("it is not shared".to_owned())),
            };
            let extent = match extent {
                Ok(extent) => extent,
                Err(error) => return Ok(Err(error.to_string())),
            };
            if let Stands::Off(base) = self.stands(&extent)? {
                match self.load(standby, queue, base).await? {
                    Some(true) => continue,
                    _ => return Ok(Err("a base of the shared log cannot be read".to_owned())),
                }
            }
            if self.number() >= extent.newest || extent.bases.is_empty() {
                return Ok(Ok(extent));
            }
            match self.read_on(standby, queue).await? {
                Read::Applied => {}
                Read::Nothing if extent.bases.last().is_some_and(|base| base.number > self.number()) => {
                    let Some(base) = extent.bases.last() else { continue };
                    if self.load(standby, queue, *base).await? != Some(true) {
                        return Ok(Err("a base of the shared log cannot be read".to_owned()));
                    }
                }
                Read::Nothing | Read::Failed => {
                    return Ok(Err("the shared log cannot be read to its end".to_owned()));
                }
                Read::Ended => return Ok(Err("the daemon is stopping".to_owned())),
            }
        }
    }

    /// Reports whether the newest unit of the shared log is the one that this journal has, as far as the engine has it for a
    /// comparison.
    pub(super) async fn is_on(&mut self, extent: &Extent) -> bool {
        let Some(link) = &mut self.link else { return true };
        let Place { number, digest, .. } = link.place.clone();
        if number != extent.newest || number == 0 {
            return true;
        }
        let found = link.log().read(number - 1, 1).await;
        match link.answered(found) {
            Ok(units) => units.first().is_none_or(|unit| unit.number != number || unit::digest(&unit.bytes) == digest),
            // Whoever cannot be asked takes no append either.
            Err(_) => true,
        }
    }

    /// Executes the daemon's requests from the time as a standby, followed by the backlog.
    pub(super) fn start_leading(&mut self, standby: &mut Standby, queue: &mut Queue) -> Result {
        // Of the leader before: none of them runs here yet.
        let facts = Facts::read(&self.disk.conn)?;
        self.committed = facts.committed();
        self.recover()?;
        let Standby { cluster, redactor, specs, waiting, ahead, states, narrows, .. } = std::mem::take(standby);
        let lost = |id: i64| ahead.get(&id).is_some_and(|ahead| ahead.lost);
        let mut commands: Vec<Command> = Vec::new();
        commands.extend(cluster.map(|cluster| Command::Cluster(cluster, Reply::new().0)));
        commands.extend(redactor.map(Command::Redaction));
        // One that has lost something registers by itself.
        let known = specs.into_iter().filter(|(_, id)| *id != 0 && !lost(*id));
        commands.extend(known.map(|(spec, _)| Command::Register(Box::new(spec), Reply::new().0)));
        let states = states.into_iter().filter(|(id, _)| *id != 0 && !lost(*id));
        commands.extend(states.map(|(id, state)| Command::Source(SourceId(id), OfSource::Report(state))));
        if narrows {
            commands.push(Command::Narrow(Reply::new().0));
        }
        let at = micros(runtime::now());
        queue.give_back(commands.into_iter().map(|command| Queued { command, at, bytes: 0, room: None }));
        for (_, _, reply) in waiting {
            reply.send(());
        }
        self.drained = Some(0);
        queue.hold(true);
        Ok(())
    }
}
