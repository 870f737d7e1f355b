//! Groups of what one writer does again and again, of fights, and of many objects that come or go at once.

use std::collections::HashMap;

use super::{Group, Object, Role};
use crate::core::model::EntryType;

/// Number of writes from which on they are one group.
const TIMES: usize = 3;
/// Number of writes from which on they are a habit, and no longer a cause.
const HABIT: usize = 5;
/// Number of objects of one resource that one writer creates or deletes, from which on they are one group.
const MANY: usize = 8;
/// Number of objects that come or go one right after the other, from which on they are one group.
const BATCH: usize = 5;
/// Time between the writes of a group, in microseconds: half of them are no further apart.
const INTERVAL: i64 = 300_000_000;
/// Time between the members of a batch, in microseconds.
const PAUSE: i64 = 10_000_000;

/// Joins groups that are one line for people.
pub(super) fn merge(groups: Vec<Group>, objects: &[Object]) -> Vec<Group> {
    let same_write = |group: &Group| {
        let object = objects.get(*group.objects.first()?)?;
        let place = (object.resource.clone(), object.namespace.clone(), object.name.clone());
        Some((place, group.op, group.fields, group.writers.iter().cloned().collect::<Vec<_>>()))
    };
    let groups = join(groups, same_write, &|members| members.len() >= TIMES && median_interval(members) <= INTERVAL);
    let fight = |group: &Group| {
        let object = objects.get(*group.objects.first()?).filter(|_| group.writes.len() >= TIMES)?;
        // Who creates an object and who deletes it do not write the same.
        Some((object.resource.clone(), object.namespace.clone(), object.name.clone(), group.op, group.fields))
    };
    let groups = join(groups, fight, &|members| members.len() > 1);
    let same_resource = |group: &Group| {
        let object = objects.get(*group.objects.first()?).filter(|_| group.op != EntryType::Modified)?;
        let writers: Vec<String> = group.writers.iter().cloned().collect();
        Some((object.resource.clone(), object.namespace.clone(), group.op, writers))
    };
    let groups = join(groups, same_resource, &|members| {
        members.len() >= MANY && median_interval(members) > PAUSE && median_interval(members) <= INTERVAL
    });
    let mut groups = batches(groups, objects);
    for group in &mut groups {
        let mut names = group.objects.iter().map(|object| objects[*object].full_name());
        let first = names.next();
        let is_of_one = names.all(|name| Some(name) == first);
        let is_habit = group.writes.len() >= HABIT && is_of_one
            || group.writes.len() >= MANY && group.last - group.first > 6 * PAUSE;
        if group.role == Role::Cause && is_habit {
            group.role = Role::Repeated;
        }
    }
    groups
}

/// Joins the groups that have the same key, where they are one.
fn join<K: std::hash::Hash + Eq>(
    groups: Vec<Group>,
    key: impl Fn(&Group) -> Option<K>,
    is_one: &dyn Fn(&[Group]) -> bool,
) -> Vec<Group> {
    let mut by_key: HashMap<K, Vec<Group>> = HashMap::new();
    let mut joined = Vec::new();
    for group in groups {
        match key(&group) {
            Some(key) => by_key.entry(key).or_default().push(group),
            None => joined.push(group),
        }
    }
    for members in by_key.into_values() {
        if is_one(&members) { joined.extend(one(members)) } else { joined.extend(members) }
    }
    joined
}

/// Joins what comes or goes by one hand, one right after the other.
fn batches(mut groups: Vec<Group>, objects: &[Object]) -> Vec<Group> {
    groups.sort_by_key(|group| (group.last, group.writes.last().copied()));
    let namespace = |group: &Group| group.objects.first().map(|object| &objects[*object].namespace);
    let (mut joined, mut open): (Vec<Group>, Vec<Vec<Group>>) = (Vec::new(), Vec::new());
    for group in groups {
        if group.op == EntryType::Modified || group.role != Role::Cause {
            joined.push(group);
            continue;
        }
        let goes_on = |batch: &&mut Vec<Group>| {
            batch.last().is_some_and(|last| {
                last.op == group.op
                    && last.writers == group.writers
                    && group.first - last.last <= PAUSE
                    && namespace(last) == namespace(&group)
            })
        };
        match open.iter_mut().find(goes_on) {
            Some(batch) => batch.push(group),
            None => open.push(vec![group]),
        }
    }
    for batch in open {
        if batch.len() >= BATCH { joined.extend(one(batch)) } else { joined.extend(batch) }
    }
    joined
}

/// Makes one group of several.
fn one(mut members: Vec<Group>) -> Option<Group> {
    members.sort_by_key(|group| (group.first, group.writes.first().copied()));
    members.into_iter().reduce(|mut all, next| {
        all.writes.extend(next.writes);
        all.writes.sort_unstable();
        all.objects.extend(next.objects);
        all.writers.extend(next.writers);
        all.first = all.first.min(next.first);
        all.last = all.last.max(next.last);
        all.role = all.role.max(next.role);
        all.is_wanted |= next.is_wanted;
        all.effects.join(next.effects);
        all
    })
}

fn median_interval(members: &[Group]) -> i64 {
    let mut times: Vec<i64> = members.iter().map(|group| group.first).collect();
    times.sort_unstable();
    let mut intervals: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    intervals.sort_unstable();
    intervals.get(intervals.len() / 2).copied().unwrap_or(i64::MAX)
}
