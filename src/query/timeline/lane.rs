//! A lane: an object, with a bar for each of its lives.

use serde::{Deserialize, Serialize};

use super::selection::Selected;
use super::window::{Found, MarkLine};
use crate::core::model::EntryType;
use crate::query::causes::Role;
use crate::query::{Word, stamp};

/// An object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lane {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owner: Option<String>,
    pub(super) depth: usize,
    /// What its changes are, where one of them is a cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<Role>,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<MarkLine>,
    pub(super) quiet: u64,
    /// Row of the object; none where the lane came from elsewhere.
    #[serde(skip)]
    pub(super) row: i64,
}

impl Lane {
    /// Reports whether the object is selected: an owner of a selected object has a lane as well.
    pub(super) fn is_of(&self, selected: &Selected) -> bool {
        selected.objects.as_ref().is_none_or(|objects| objects.contains(&self.row))
    }

    /// Returns the full name of the object's resource, its namespace and its name.
    pub(super) fn object(&self) -> (String, String, String) {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }
}

/// One life of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bar {
    uid: String,
    from: Option<String>,
    from_how: Word,
    to: Option<String>,
    to_how: Word,
}

/// The lives of an object, oldest first. `uid` is that of the last one.
pub(super) fn bars(found: &Found, uid: &str) -> Vec<Bar> {
    let begun = |from: Option<i64>, from_how: &str, uid: &str| Bar {
        uid: uid.to_owned(),
        from: from.map(stamp),
        from_how: from_how.to_owned().into(),
        to: None,
        to_how: "open".into(),
    };
    let mut bars = Vec::new();
    let mut open = match found.oldest {
        Some(EntryType::Added) => None,
        // It was there before the first entry that is known of it.
        Some(EntryType::Modified | EntryType::Deleted | EntryType::Gap | EntryType::Actor) | None => {
            Some(begun(None, "before", ""))
        }
    };
    for turn in found.turns.iter().rev() {
        if turn.came {
            // That it went is nowhere: nobody knows when.
            if let Some(lost) = open.take() {
                bars.push(Bar { to: Some(stamp(turn.time)), to_how: "inferred".into(), ..lost });
            }
            open = Some(begun(Some(turn.time), turn.evidence, &turn.uid));
        } else {
            let mut bar = open.take().unwrap_or_else(|| begun(None, "before", ""));
            if bar.uid.is_empty() {
                bar.uid.clone_from(&turn.uid);
            }
            let to_how = if turn.evidence == "listed" { "inferred" } else { turn.evidence };
            bars.push(Bar { to: Some(stamp(turn.time)), to_how: to_how.into(), ..bar });
        }
    }
    if let Some(mut bar) = open {
        if bar.uid.is_empty() {
            uid.clone_into(&mut bar.uid);
        }
        bars.push(bar);
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::timeline::window::Turn;

    fn turn(came: bool, time: i64, evidence: &'static str, uid: &str) -> Turn {
        Turn { came, time, evidence, uid: uid.to_owned() }
    }

    fn shown(oldest: EntryType, turns: Vec<Turn>) -> Vec<String> {
        let found = Found { oldest: Some(oldest), turns: turns.into_iter().rev().collect(), ..Found::default() };
        let at = |time: &Option<String>| time.as_deref().map_or("-", |time| &time[17..19]).to_owned();
        let bars = bars(&found, "last");
        bars.iter()
            .map(|bar| format!("{} {}{}..{}{}", bar.uid, at(&bar.from), bar.from_how, at(&bar.to), bar.to_how))
            .collect()
    }

    #[test]
    fn a_bar_says_no_more_than_is_known() {
        use EntryType::{Added, Deleted, Modified};
        let second = 1_000_000;
        assert_eq!(shown(Modified, vec![]), ["last -before..-open"]);
        assert_eq!(shown(Added, vec![turn(true, second, "watched", "a")]), ["a 01watched..-open"]);
        assert_eq!(shown(Added, vec![turn(true, second, "listed", "a")]), ["a 01listed..-open"]);
        assert_eq!(shown(Deleted, vec![turn(false, second, "watched", "a")]), ["a -before..01watched"]);
        assert_eq!(
            shown(
                Modified,
                vec![
                    turn(false, second, "inferred", "a"),
                    turn(true, 2 * second, "inferred", "b"),
                    turn(false, 3 * second, "recovered", "b"),
                    turn(true, 4 * second, "watched", "c"),
                ]
            ),
            ["a -before..01inferred", "b 02inferred..03recovered", "c 04watched..-open"]
        );
        // Its end was truncated, or lies in a damaged entry.
        let lost = vec![turn(true, second, "watched", "a"), turn(true, 2 * second, "watched", "b")];
        assert_eq!(shown(Added, lost), ["a 01watched..02inferred", "b 02watched..-open"]);
    }
}
