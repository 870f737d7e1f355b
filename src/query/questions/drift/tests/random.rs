//! Random edits and self-heals, of which a model knows every drift.

use proptest::prelude::*;

use super::cluster::{self, Cluster, Do};
use super::{ARGO, Drifting, FLUX, spelled};

const FIELDS: [&str; 4] = ["replicas", "image", "team", "paused"];
const VALUES: [&str; 4] = ["1", "2", "3", "4"];
const PEOPLE: [&str; 3] = ["kubectl-edit", "lens", "kubectl-patch"];

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// Somebody sets a field.
    Edit(usize, usize, usize),
    Autoscale(usize),
    Heal,
    /// The repository has another value.
    Revise(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..PEOPLE.len(), 0..FIELDS.len(), 0..VALUES.len()).prop_map(|(who, field, value)| Event::Edit(who, field, value)),
        1 => (0..VALUES.len()).prop_map(Event::Autoscale),
        3 => Just(Event::Heal),
        1 => (0..FIELDS.len(), 0..VALUES.len()).prop_map(|(field, value)| Event::Revise(field, value)),
    ]
}

/// What is true of one field.
struct Truth {
    /// The value in the repository, and that which the tool applied last.
    wanted: usize,
    applied: usize,
    now: usize,
    is_of_tool: bool,
    /// Start, writer and value of a drift.
    open: Option<(u32, usize, usize)>,
}

#[derive(Default)]
struct Model {
    drifts: Vec<String>,
}

impl Model {
    fn end(&mut self, field: usize, truth: &mut Truth, now: u32, how: &str, by: &str) {
        if let Some((began, who, value)) = truth.open.take() {
            let (expected, got) = (VALUES[truth.applied], VALUES[value]);
            let seconds = now - began;
            self.drifts.push(format!(
                "{began} {} {expected}>{got} {}: {how} {seconds}s {by}",
                name(field),
                PEOPLE[who]
            ));
        }
    }
}

fn name(field: usize) -> &'static str {
    ["replicas", "image", "label team", "spec.paused"][field]
}

/// Happens in the model, at a time.
fn happen(model: &mut Model, truths: &mut [Truth], event: &Event, now: u32, is_server_side: bool) {
    let tool = if is_server_side { FLUX } else { ARGO };
    match *event {
        Event::Edit(who, field, value) => {
            let truth = &mut truths[field];
            if truth.now == value {
                return;
            }
            let (was_of_tool, was_open) = (truth.is_of_tool, truth.open.is_some());
            (truth.now, truth.is_of_tool) = (value, false);
            if value == truth.applied && was_open {
                model.end(field, truth, now, "Restored", PEOPLE[who]);
                truth.is_of_tool = true;
            } else if was_open {
                model.end(field, truth, now, "Overwritten", PEOPLE[who]);
                truth.open = Some((now, who, value));
            } else if was_of_tool {
                truth.open = Some((now, who, value));
            }
        }
        Event::Autoscale(value) => {
            let truth = &mut truths[0];
            if truth.now == value {
                return;
            }
            (truth.now, truth.is_of_tool) = (value, false);
            let how = if value == truth.applied { "Restored" } else { "Overwritten" };
            model.end(0, truth, now, how, "kube-controller-manager");
        }
        Event::Revise(field, value) => truths[field].wanted = value,
        Event::Heal => {
            for (field, truth) in truths.iter_mut().enumerate() {
                let (wanted, got) = (truth.wanted, truth.now);
                let how = match () {
                    () if wanted == truth.applied => "Restored",
                    () if wanted == got => "Adopted",
                    () => "Replaced",
                };
                // A client-side apply leaves a field that has its value to its owner.
                truth.is_of_tool |= is_server_side || wanted != got || truth.open.is_some();
                model.end(field, truth, now, how, tool);
                (truth.now, truth.applied) = (wanted, wanted);
            }
        }
    }
}

fn heal(truths: &[Truth], is_server_side: bool) -> Do {
    let fields = FIELDS.iter().zip(truths).map(|(field, truth)| (*field, VALUES[truth.wanted])).collect();
    if is_server_side { Do::Apply(FLUX, fields) } else { Do::Sync(ARGO, fields) }
}

fn step(event: &Event, truths: &[Truth], is_server_side: bool) -> Option<Do> {
    match *event {
        Event::Edit(who, field, value) => Some(Do::Edit(PEOPLE[who], FIELDS[field], VALUES[value])),
        Event::Autoscale(value) => Some(Do::Scale("kube-controller-manager", VALUES[value])),
        Event::Heal => Some(heal(truths, is_server_side)),
        Event::Revise(..) => None,
    }
}

/// Plays events, and returns what is true and what was found.
async fn both(events: &[Event], is_server_side: bool) -> (Vec<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, writing) = Cluster::begin(dir.path(), false).await;
    let mut model = Model::default();
    let scripted = async {
        cluster.watch().await;
        let new = |_| Truth { wanted: 0, applied: 0, now: 0, is_of_tool: true, open: None };
        let mut truths: Vec<Truth> = (0..FIELDS.len()).map(new).collect();
        cluster.at(2);
        cluster.run(heal(&truths, is_server_side)).await;
        let mut now = 2;
        for event in events {
            now += 2;
            cluster.at(now);
            if let Some(step) = step(event, &truths, is_server_side) {
                cluster.run(step).await;
            }
            happen(&mut model, &mut truths, event, now, is_server_side);
        }
        for (field, truth) in truths.iter_mut().enumerate() {
            if let Some((began, who, value)) = truth.open.take() {
                let (expected, got) = (VALUES[truth.applied], VALUES[value]);
                model.drifts.push(format!(
                    "{began} {} {expected}>{got} {}: open {}s",
                    name(field),
                    PEOPLE[who],
                    3600 - began
                ));
            }
        }
        drop(cluster);
    };
    tokio::join!(writing, scripted);
    let (found, _) = cluster::ask(dir.path(), Drifting::default());
    let mut drifts = Vec::new();
    for mut one in found.drifts {
        let began = one.began.time.duration_since(cluster::time(0)).as_secs();
        for field in std::mem::take(&mut one.fields) {
            one.fields = vec![field];
            drifts.push(format!("{began} {}", spelled(&one)));
        }
    }
    drifts.sort();
    model.drifts.sort();
    (model.drifts, drifts)
}

/// The case that a search found: fields that a person put back are drifts again, when the same person changes them once more.
#[tokio::test(start_paused = true)]
async fn a_field_that_was_put_back_drifts_again() {
    use Event::{Autoscale, Edit};
    let edits = [(1, 1), (2, 1), (2, 0), (3, 1), (1, 0), (3, 0), (1, 1)];
    let events: Vec<Event> =
        [Autoscale(1)].into_iter().chain(edits.map(|(field, value)| Edit(0, field, value))).collect();
    let (expected, found) = both(&events, true).await;
    assert_eq!(found, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// No drift is invented, none is missing, and each has its writer, its values, its times and its end.
    #[test]
    fn every_drift_is_found_and_nothing_else(events in prop::collection::vec(event(), 1..60), is_server_side: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (expected, found) = runtime.block_on(both(&events, is_server_side));
        prop_assert_eq!(found, expected);
    }
}
