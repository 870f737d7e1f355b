//! The order of lanes: by causes, as `decklog log -n` lists them, or by names.
//!
//! Causes are what few entries are. The outlines of the log say of most entries that they are none: of a status, of a Lease, of
//! what a controller made, of what a first list found. The others are read, the newest first, for as long as there is time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::lane::Lane;
use super::outlines::{Index, Way, who};
use super::selection::{Selected, lane_id};
use super::window::{MarkLine, Narrow};
use crate::core::model::{EntryType, Evidence, Seq};
use crate::core::wire::Entry;
use crate::journal::Reader;
use crate::journal::outline::{Mark, Part};
use crate::query::causes::{Facts, Role, is_derived, is_of_control_plane};
use crate::query::questions::causes::learn_owners;
use crate::query::render::{Failure, object};

/// Bound of a search for causes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Number of entries that are read.
    pub(super) entries: usize,
    pub(super) deadline: Instant,
}

impl Effort {
    /// As many entries as an answer reads for its order.
    pub(super) const fn until(deadline: Instant) -> Self {
        Self { entries: 20_000, deadline }
    }
}

/// Number of entries of one writer that are read to learn whether it is a controller.
const TRIALS: u8 = 8;

/// Order of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Objects with a cause first, the newest cause first; then those that are written again and again, then the rest.
    #[default]
    Causes,
    /// By namespace, resource and name.
    Names,
}

impl Order {
    /// Reads the word for it.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "causes" => Some(Self::Causes),
            "names" => Some(Self::Names),
            _ => None,
        }
    }
}

/// Places of the objects of causes.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The objects, by their rows.
    pub(super) rows: HashSet<i64>,
    /// Place and role, by the lane.
    by_lane: HashMap<String, (usize, Role)>,
    /// First seq from which on causes are known, where older ones were not looked for.
    pub(super) cut: Option<u64>,
}

impl Ranks {
    /// Finds the causes within these seqs: at most `most` objects. Causes beyond the effort have no place, and `cut` says so.
    pub(super) fn find(
        index: &Index,
        reader: &mut Reader,
        selected: &Selected,
        bounds: (u64, u64),
        most: usize,
        effort: Effort,
    ) -> Result<Self, Failure> {
        let Candidates { found, mut cut } = candidates(index, reader, selected, bounds, effort)?;
        let (mut facts, mut rows, mut read) = (Facts::default(), HashMap::new(), None);
        for (seq, row) in found {
            if read.is_some() && Instant::now() > effort.deadline {
                cut = read;
                break;
            }
            read = Some(seq);
            // A damaged one is the cause of nothing.
            let Ok(Some(stored)) = reader.entry(Seq(seq)) else { continue };
            let Ok(entry) = object::parse(&stored) else { continue };
            if facts.take(&entry, true).is_ok() {
                rows.insert(of_entry(&entry), row);
            }
        }
        learn_owners(reader, &mut facts)?;
        let groups = facts.groups();
        let mut ranks = Self { cut, ..Self::default() };
        for placed in groups.in_order() {
            let object = &groups.objects[placed.object];
            let id = lane_id(&object.resource, &object.namespace, &object.name);
            let Some(row) = rows.get(&id) else { continue };
            if ranks.rows.len() >= most {
                break;
            }
            ranks.rows.insert(*row);
            let place = ranks.by_lane.len();
            ranks.by_lane.entry(id).or_insert((place, placed.role));
        }
        Ok(ranks)
    }

    /// Returns the place and the role of a lane.
    pub(super) fn of(&self, lane: &str) -> Option<(usize, Role)> {
        self.by_lane.get(lane).copied()
    }
}

fn of_entry(entry: &Entry<'_>) -> String {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    lane_id(&entry.full_resource(), &text(entry.namespace.as_deref()), &text(entry.name.as_deref()))
}

/// Entries that may be causes.
#[derive(Default)]
struct Candidates {
    /// Seqs and objects, newest first.
    found: Vec<(u64, i64)>,
    /// First seq that was looked at, where the effort ended before the first of the bounds.
    cut: Option<u64>,
}

/// Returns the entries within the bounds that may be causes.
fn candidates(
    index: &Index,
    reader: &mut Reader,
    selected: &Selected,
    bounds: (u64, u64),
    effort: Effort,
) -> Result<Candidates, Failure> {
    let derived: HashSet<i64> = {
        let sources = reader.sources()?.into_iter();
        sources.filter(|source| is_derived(&source.resource.full_name())).map(|source| source.id.0).collect()
    };
    // An expression is asked of whole entries, and chooses what is shown: the order is that of all.
    let narrow = if selected.asks_for_senders(reader)? { Narrow::of(selected) } else { Narrow::of_unsent(selected) };
    let (mut list, mut trials) = (Candidates::default(), HashMap::<Vec<String>, u8>::new());
    let choose = |part: &Part, mark: &Mark| mark.object != 0 && narrow.takes(part, mark);
    let mut visit = |part: &Part, mark: &Mark| {
        if may_be(part, mark, &derived, &mut trials) {
            if list.found.len() >= effort.entries {
                list.cut = Some(mark.seq + 1);
                return ControlFlow::Break(());
            }
            list.found.push((mark.seq, mark.object));
        }
        ControlFlow::Continue(())
    };
    let reached = index.walk(reader, bounds, Way::Back, effort.deadline, (&choose, &mut visit))?;
    list.cut = list.cut.or(reached);
    Ok(list)
}

/// Reports whether an entry may be a cause, or shows who is a controller.
fn may_be(part: &Part, mark: &Mark, derived: &HashSet<i64>, trials: &mut HashMap<Vec<String>, u8>) -> bool {
    if mark.quiet || !mark.kind().is_change() || mark.evidence() == Evidence::Listed.as_str() {
        return false;
    }
    let managers = who(&part.words(mark)).0;
    let is_of_control_plane = !managers.is_empty() && managers.iter().all(|manager| is_of_control_plane(manager));
    if derived.contains(&mark.source) {
        // Endpoints without a selector are written by hand.
        return !managers.is_empty() && !is_of_control_plane;
    }
    if mark.kind() != EntryType::Modified {
        return !is_of_control_plane;
    }
    let is_status = |area: &str| area == "status" || area == "managedFields";
    if !part.areas(mark).split(',').all(is_status) {
        return true;
    }
    let tried = trials.entry(managers).or_default();
    *tried = tried.saturating_add(1);
    !is_of_control_plane && *tried <= TRIALS
}

/// Resources of which things come and go by themselves, besides those of which controllers write each change.
const BY_ITSELF: [&str; 2] = ["jobs.batch", "cronjobs.batch"];
/// An owner of an owner of an owner is no lane below.
const DEEPEST: usize = 2;

/// Place of a lane among others. Without causes they stand by their names.
type Place = (usize, u8, (String, String, String));

fn place(lane: &Lane, ranks: &Ranks, order: Order) -> Place {
    let names = (lane.namespace.clone(), lane.resource.clone(), lane.name.clone());
    if order == Order::Names {
        return (0, 0, names);
    }
    let by_itself = is_derived(&lane.resource) || BY_ITSELF.contains(&&*lane.resource);
    let class = match lane.marks.iter().any(MarkLine::is_change) {
        true if by_itself => 1,
        true => 0,
        false if lane.quiet > 0 => 2,
        false => 3,
    };
    (ranks.of(&lane.id).map_or(usize::MAX, |(place, _)| place), class, names)
}

/// Puts lanes in order, each with what it owns below it: a tree stands where the first of its objects belongs.
pub(super) fn in_order(mut lanes: BTreeMap<String, Lane>, ranks: &Ranks, order: Order) -> Vec<Lane> {
    for lane in lanes.values_mut() {
        lane.role = ranks.of(&lane.id).map(|(_, role)| role);
    }
    let owner = |lane: &Lane| lane.owner.clone().filter(|owner| *owner != lane.id && lanes.contains_key(owner));
    let mut below: HashMap<Option<String>, Vec<String>> = HashMap::new();
    for lane in lanes.values() {
        below.entry(owner(lane)).or_default().push(lane.id.clone());
    }
    // What is below a lane takes that to its own place; what the lane does by itself stays its own.
    let mut places: HashMap<String, Place> =
        lanes.values().map(|lane| (lane.id.clone(), place(lane, ranks, order))).collect();
    for lane in lanes.values().filter(|_| order == Order::Causes) {
        let Some((rank, class, _)) = places.get(&lane.id).cloned() else { continue };
        let mut at = lane;
        for _ in 0..=DEEPEST + 2 {
            let Some(above) = owner(at).and_then(|owner| lanes.get(&owner)) else { break };
            if let Some(place) = places.get_mut(&above.id) {
                let of_itself = BY_ITSELF.contains(&&*above.resource);
                place.0 = place.0.min(rank);
                place.1 = place.1.min(if of_itself { class.max(1) } else { class });
            }
            at = above;
        }
    }
    for children in below.values_mut() {
        children.sort_by_key(|id| places.get(id).cloned());
    }
    let mut sorted: Vec<(String, usize)> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut stack: Vec<(String, usize)> = Vec::new();
    let roots = below.get(&None).cloned().unwrap_or_default();
    // Those that own each other in a circle are nobody's.
    for root in roots.into_iter().chain(lanes.keys().cloned()) {
        stack.push((root, 0));
        while let Some((id, depth)) = stack.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let children = below.get(&Some(id.clone())).into_iter().flatten().rev();
            stack.extend(children.map(|child| (child.clone(), depth + 1)));
            sorted.push((id, depth.min(DEEPEST)));
        }
    }
    let mut in_order = Vec::with_capacity(sorted.len());
    for (id, depth) in sorted {
        if let Some(mut lane) = lanes.remove(&id) {
            lane.depth = depth;
            in_order.push(lane);
        }
    }
    in_order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owned_stands_below_its_owner() {
        let lane = |resource: &str, name: &str, owner: Option<&str>| Lane {
            id: lane_id(resource, "shop", name),
            kind: String::new(),
            resource: resource.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            owner: owner.map(str::to_owned),
            depth: 0,
            role: None,
            bars: Vec::new(),
            marks: Vec::new(),
            quiet: 0,
            row: 0,
        };
        let lanes = [
            lane("pods", "web-1", Some("replicasets.apps/shop/web-a")),
            lane("pods", "alone", None),
            lane("pods", "stray", Some("jobs.batch/shop/gone")),
            lane("replicasets.apps", "web-a", Some("deployments.apps/shop/web")),
            lane("deployments.apps", "web", None),
            lane("things", "a", Some("things/shop/b")),
            lane("things", "b", Some("things/shop/a")),
            lane("things", "own", Some("things/shop/own")),
        ];
        let lanes = lanes.into_iter().map(|lane| (lane.id.clone(), lane)).collect();
        let order: Vec<String> = in_order(lanes, &Ranks::default(), Order::Names)
            .iter()
            .map(|lane| format!("{}{}", lane.depth, lane.name))
            .collect();
        assert_eq!(order, ["0web", "1web-a", "2web-1", "0alone", "0stray", "0own", "0a", "1b"]);
    }
}
