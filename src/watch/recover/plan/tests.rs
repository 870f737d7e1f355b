//! The planner against histories of etcd.

use proptest::prelude::*;

use super::*;

/// What one revision did.
#[derive(Clone, Debug)]
enum Write {
    /// Created, or changed where it was there.
    Put(u8),
    Delete(u8),
    /// Several at once, as etcd deletes what hangs on a lease.
    Expire(Vec<u8>),
    /// Of another resource: known to be, or not.
    Other(bool),
}

fn key(name: u8) -> Key {
    ("shop".to_owned(), format!("o{name}"))
}

/// The states of every object at each revision, and what happened.
#[derive(Debug)]
struct History {
    states: Vec<BTreeMap<Key, State>>,
    changes: Vec<Change>,
    others: BTreeSet<u64>,
}

impl History {
    fn of(writes: &[Write], from: u64) -> Self {
        let (mut states, mut changes, mut others) = (vec![BTreeMap::new()], Vec::new(), BTreeSet::new());
        let mut uids = 0;
        for (write, version) in writes.iter().zip(1..) {
            let mut now: BTreeMap<Key, State> = states.last().cloned().unwrap_or_default();
            let mut delete = |now: &mut BTreeMap<Key, State>, name: u8| {
                if now.remove(&key(name)).is_some() {
                    changes.push(Change { version, key: key(name), deleted: true });
                }
            };
            match write {
                Write::Put(name) => {
                    uids += 1;
                    let uid = now.get(&key(*name)).map_or(uids, |state| state.uid);
                    now.insert(key(*name), State { uid, version });
                    changes.push(Change { version, key: key(*name), deleted: false });
                }
                Write::Delete(name) => delete(&mut now, *name),
                Write::Expire(names) => names.iter().for_each(|name| delete(&mut now, *name)),
                Write::Other(known) => {
                    if *known {
                        others.insert(version);
                    }
                }
            }
            states.push(now);
        }
        changes.retain(|change| change.version > from);
        changes.sort_by(|one, other| (one.version, &one.key).cmp(&(other.version, &other.key)));
        Self { states, changes, others }
    }

    fn at(&self, revision: u64) -> &BTreeMap<Key, State> {
        &self.states[usize::try_from(revision).unwrap()]
    }

    fn plan(&self, from: u64, to: u64) -> Plan {
        let mut plan = Plan::new(from, to);
        plan.explain(&self.others);
        let (before, after) = (self.at(from), self.at(to));
        for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            match (before.get(key), after.get(key)) {
                (Some(before), Some(after)) if before == after => plan.same(),
                (before, after) => {
                    plan.begins(key, before.map(|state| (state.version, Some(*state)))).unwrap();
                    plan.ends(key, after.copied()).unwrap();
                }
            }
        }
        plan
    }

    /// Answers until nothing is asked. `count` is what the API server says where it has this many.
    fn recover(
        &self,
        from: u64,
        to: u64,
        count: impl Fn(u64, u64) -> Option<u64>,
    ) -> Result<(Vec<Change>, Vec<Question>), Inconsistency> {
        let (mut plan, mut asked, mut contents) = (self.plan(from, to), Vec::new(), BTreeSet::new());
        loop {
            let questions = plan.next()?;
            if questions.is_empty() {
                break;
            }
            for question in questions {
                assert!(!asked.contains(&question), "asked twice: {question:?}");
                asked.push(question.clone());
                match question {
                    Question::Object(key, at) => {
                        let state = self.at(at).get(&key).copied();
                        plan.object(&key, at, at, state)?;
                        contents.extend(state.filter(|state| state.version > from).map(|state| (state.version, key)));
                    }
                    Question::Count(at) => plan.count(at, count(at, self.at(at).len() as u64)),
                    Question::Names(at) => {
                        let now = self.at(at).iter().filter(|(_, state)| state.version > from);
                        let changed = now.map(|(key, state)| (key.clone(), *state)).collect();
                        plan.names(at, self.at(at).len() as u64, changed)?;
                    }
                }
            }
        }
        let changes = plan.changes()?;
        let needed: BTreeSet<(u64, Key)> = changes
            .iter()
            .filter(|change| !change.deleted)
            .map(|change| (change.version, change.key.clone()))
            .collect();
        assert_eq!(contents, needed, "the content of each version is had, and of nothing else");
        Ok((changes, asked))
    }
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => (0..6_u8).prop_map(Write::Put),
        3 => (0..6_u8).prop_map(Write::Delete),
        1 => proptest::collection::vec(0..6_u8, 2..4).prop_map(Write::Expire),
        2 => any::<bool>().prop_map(Write::Other),
    ]
}

proptest! {
    #[test]
    fn every_change_is_found_and_nothing_else(
        writes in proptest::collection::vec(write(), 1..60),
        from in 0..60_usize,
    ) {
        let to = writes.len() as u64;
        let from = from as u64 % (to + 1);
        let history = History::of(&writes, from);
        let (found, asked) = history.recover(from, to, |_, count| Some(count)).unwrap();
        prop_assert_eq!(&found, &history.changes);
        // One question for each version, a bisection for each deletion, one for each revision that nothing explains,
        // and a list for what came and went.
        let window = usize::try_from(to - from).unwrap();
        let deleted = found.iter().filter(|change| change.deleted).count();
        let lists = asked.iter().filter(|question| matches!(question, Question::Names(_))).count();
        prop_assert!(lists <= deleted, "{} lists for {} deletions", lists, deleted);
        let most = 2 * found.len() + deleted * (window + 2).ilog2() as usize + 2 * window;
        prop_assert!(asked.len() <= most + 3, "{} questions, {} changes in {}", asked.len(), found.len(), window);
    }

    #[test]
    fn without_counts_names_show_the_same(writes in proptest::collection::vec(write(), 1..40), lie in 0..3_u64) {
        let to = writes.len() as u64;
        let history = History::of(&writes, 0);
        // Absent, or too low where anything is known.
        let count = |_, count: u64| (lie > 0).then(|| count.saturating_sub(lie));
        let found = history.recover(0, to, count);
        // Where nothing is left at the end, too few cannot be distinguished from none.
        if lie == 0 || !history.at(to).is_empty() {
            prop_assert_eq!(&found.unwrap().0, &history.changes);
        }
    }

    #[test]
    fn whatever_is_answered_it_ends(
        answers in proptest::collection::vec((any::<u8>(), 0..40_u64, any::<bool>()), 1..400),
        writes in proptest::collection::vec(write(), 1..40),
    ) {
        let to = writes.len() as u64;
        let history = History::of(&writes, 0);
        let mut plan = history.plan(0, to);
        let mut answers = answers.into_iter().cycle();
        let mut asked = BTreeSet::new();
        'ask: while let Ok(questions) = plan.next() {
            if questions.is_empty() {
                break;
            }
            for question in questions {
                prop_assert!(asked.insert(question.clone()), "asked twice: {:?}", question);
                let (uid, version, some) = answers.next().unwrap();
                let state = some.then_some(State { uid: uid.into(), version });
                let taken = match question {
                    Question::Object(key, at) => plan.object(&key, at, at, state),
                    Question::Count(at) => { plan.count(at, some.then_some(version)); Ok(()) }
                    Question::Names(at) => {
                        plan.names(at, version, state.map(|state| (key(uid % 8), state)).into_iter().collect())
                    }
                };
                if taken.is_err() {
                    break 'ask;
                }
            }
        }
    }
}
