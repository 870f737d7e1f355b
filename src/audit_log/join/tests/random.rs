//! Random worlds, of which each write is known: no wrong actor, and most named.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{START, Sent, World};
use super::*;

/// What the audit log shows of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    /// Bodies of answers, always.
    Bodies,
    /// No bodies.
    Metadata,
    /// Some of this, some of that, and some are cut off.
    Mixed,
    /// All are cut off, and no time is known.
    Cut,
    /// As GKE shows them: without managers, with a label of a dry run, bodies of some, and one time, which is that of the request or that
    /// of the answer.
    Google,
}

#[derive(Debug, Default)]
struct Score {
    /// Creations and changes that managedFields show, of writers with managers of their own: how many there are, and how many were named.
    own: (usize, usize),
    /// Those of writers who share a manager.
    shared: (usize, usize),
    /// Deletions, and writes that move nobody's time.
    hidden: (usize, usize),
    wrong: Vec<String>,
    reasons: BTreeMap<String, usize>,
    wasted: (usize, usize),
}

fn shown(request: &AuditedRequest, level: Level, random: &mut fastrand::Rng) -> AuditedRequest {
    let mut shown = request.clone();
    let (body, cut) = match level {
        Level::Bodies => (true, false),
        Level::Metadata => (false, false),
        Level::Mixed => (random.bool(), random.u8(0..20) == 0),
        Level::Cut => (false, true),
        Level::Google => (random.u8(0..4) == 0, false),
    };
    if !body || cut {
        shown.after.clear();
        // A body says whether a deletion is a dry run, and nothing else does.
        let is_deletion =
            matches!(shown.verb.as_str(), "delete" | "deletecollection") || shown.subresource == "eviction";
        (shown.may_be_dry, shown.dry_run) = (is_deletion, shown.dry_run && !is_deletion);
        if shown.verb != "update" {
            shown.uid.clear();
        }
        if shown.name.starts_with("generated") && shown.verb == "create" {
            shown.name.clear();
        }
    }
    if level == Level::Google {
        shown.manager.clear();
        (shown.may_be_dry, shown.dry_run) = (false, request.dry_run);
        let at = if random.bool() { shown.received } else { shown.completed };
        (shown.received, shown.completed) = (at, at);
    }
    if cut {
        (shown.cut, shown.received) = (true, 0);
        shown.completed = if level == Level::Cut || random.bool() { 0 } else { shown.completed + 300_000 };
    }
    shown
}

enum Item {
    Request(usize),
    Version(usize),
}

/// Gives both sides to a join, late, shuffled and repeated, and judges its answers. `audited` says whose requests the audit log has.
fn judge(world: &World, level: Level, seed: u64, score: &mut Score, audited: impl Fn(usize) -> bool) {
    judge_so(world, level, Way { seed, skew: SECOND / 5, late: 60 * SECOND, begins: i64::MIN }, score, audited);
}

/// How a join gets both sides.
#[derive(Clone, Copy)]
struct Way {
    seed: u64,
    /// Most by which clocks differ.
    skew: i64,
    /// Time by which requests and versions are late at most.
    late: i64,
    /// Time from which on the audit log has what is answered.
    begins: i64,
}

/// The same in another way.
fn judge_so(world: &World, level: Level, way: Way, score: &mut Score, audited: impl Fn(usize) -> bool) {
    let Way { seed, skew, late, begins } = way;
    let audited = |sent: &Sent| audited(sent.writer) && sent.request.completed >= begins;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut items: Vec<(i64, Item)> = Vec::new();
    let delays = [random.i64(1..late), random.i64(1..60 * SECOND)];
    for (place, sent) in world.sent.iter().enumerate().filter(|(_, sent)| audited(sent)) {
        for _ in 0..random.u8(1..3) {
            items.push((sent.at + random.i64(0..delays[0]), Item::Request(place)));
        }
    }
    for (place, made) in world.made.iter().enumerate().filter(|(_, made)| !made.suppressed) {
        for _ in 0..random.u8(1..3) {
            items.push((made.at + random.i64(0..delays[1]), Item::Version(place)));
        }
    }
    items.sort_by_key(|(at, _)| *at);
    // Each side is complete up to what has not come once.
    let mut first: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for (order, (_, item)) in items.iter().enumerate() {
        let key = match item {
            Item::Request(place) => (true, *place),
            Item::Version(place) => (false, *place),
        };
        first.entry(key).or_insert(order);
    }
    let mut complete = vec![[i64::MAX / 2; 2]; items.len() + 1];
    for order in (0..items.len()).rev() {
        complete[order] = complete[order + 1];
        let (side, at) = match items[order].1 {
            Item::Request(place) if first[&(true, place)] == order => (0, world.sent[place].request.completed),
            Item::Version(place) if first[&(false, place)] == order => (1, world.made[place].at),
            Item::Request(_) | Item::Version(_) => continue,
        };
        complete[order][side] = complete[order][side].min(at - 1);
    }
    let mut joiner = Joiner::new(Limits { skew, ..Limits::default() }, START - 60 * SECOND);
    if begins > i64::MIN {
        joiner.begin(begins);
    }
    let mut settled = Settled::default();
    let mut gather = |joiner: &mut Joiner| {
        let more = joiner.take();
        settled.verdicts.extend(more.verdicts);
        settled.wasted.extend(more.wasted);
        settled.unknown_versions.extend(more.unknown_versions);
    };
    let views: Vec<AuditedRequest> = world.sent.iter().map(|sent| shown(&sent.request, level, &mut random)).collect();
    for (order, (now, item)) in items.iter().enumerate() {
        match item {
            Item::Request(place) => joiner.request(views[*place].clone()),
            Item::Version(place) => joiner.version(world.made[*place].version.clone()),
        }
        if random.u8(0..10) == 0 {
            let [requests, versions] = complete[order + 1];
            joiner.advance(requests.min(*now), versions.min(*now));
            gather(&mut joiner);
        }
    }
    let end = items.last().map_or(START, |item| item.0);
    for step in 1..20 {
        joiner.advance(end + step * 10 * SECOND, end + step * 10 * SECOND);
    }
    gather(&mut joiner);
    grade(world, &settled, score);
}

fn grade(world: &World, settled: &Settled, score: &mut Score) {
    let mut answered = vec![0; world.made.len()];
    for verdict in &settled.verdicts {
        let place = usize::try_from(verdict.seq).unwrap() - 1;
        answered[place] += 1;
        let made = &world.made[place];
        let maker = &world.sent[made.actor];
        let writer = &world.writers[maker.writer];
        let count = match (made.version.movers().next(), writer.own) {
            (None, _) => &mut score.hidden,
            (Some(_), true) => &mut score.own,
            (Some(_), false) => &mut score.shared,
        };
        // Nobody can name the sender of a request whose answer was lost.
        let nameable = maker.request.writes();
        count.0 += usize::from(nameable);
        match &verdict.actor {
            Ok(actor) => {
                count.1 += usize::from(nameable);
                let (is, was) = (&actor.sender, &writer.sender);
                let same = is.user == was.user
                    && is.impersonated_by == was.impersonated_by
                    && (is.agent.is_empty() || is.agent == was.agent)
                    && (is.addresses.is_empty() || is.addresses == was.addresses)
                    && (actor.verb.is_empty() || actor.verb == maker.request.verb)
                    && actor.audit_ids.contains(&maker.request.id);
                if !same {
                    score.wrong.push(format!("{:?}\n  by {:?}\n  said {actor:?}", made.version, maker.request));
                }
                *score.reasons.entry(actor.certainty.as_str().to_owned()).or_default() += 1;
            }
            Err(reason) => *score.reasons.entry(format!("-{}", reason.as_str())).or_default() += 1,
        }
    }
    let once = answered.iter().zip(&world.made).all(|(&times, made)| times == usize::from(!made.suppressed));
    assert!(once, "each version has one verdict: {answered:?}");
    // A request whose only version was suppressed made none, as far as the log knows.
    let makers = |suppressed: bool| {
        let makers = world.made.iter().filter(move |made| made.suppressed == suppressed);
        makers.map(|made| world.sent[made.maker].request.id.as_str()).collect::<BTreeSet<_>>()
    };
    let (makers, unseen) = (makers(false), makers(true));
    for write in &settled.wasted {
        if makers.contains(write.id.as_str()) {
            score.wrong.push(format!("made a version, and is called wasted: {write:?}"));
        }
    }
    score.wasted.0 += world
        .sent
        .iter()
        .filter(|sent| {
            !sent.made && sent.request.writes() && ["update", "patch", "apply"].contains(&&*sent.request.verb)
        })
        .count();
    score.wasted.1 += settled.wasted.len();
    for write in settled.unknown_versions.iter().filter(|write| !unseen.contains(write.id.as_str())) {
        score.wrong.push(format!("its version is in the log: {write:?}"));
    }
}

fn thousandths((of, named): (usize, usize)) -> usize {
    named * 1000 / of.max(1)
}

/// Worlds of each pair of level and pace: thousands of writes.
const WORLDS: u64 = 30;

/// Worlds at several paces: from requests that have seconds of their own to twenty in one second on five objects.
#[test]
fn no_actor_is_wrong_and_most_are_known() {
    let floors = [
        // Level, pace, floors in thousandths: of writers with managers of their own, of those who share one, and of the rest.
        (Level::Bodies, 5 * SECOND, [999, 990, 970]),
        (Level::Bodies, SECOND / 2, [999, 990, 950]),
        (Level::Bodies, SECOND / 20, [999, 985, 735]),
        (Level::Metadata, 5 * SECOND, [999, 990, 960]),
        (Level::Metadata, SECOND / 2, [999, 980, 900]),
        (Level::Metadata, SECOND / 20, [999, 905, 455]),
        (Level::Mixed, 5 * SECOND, [999, 980, 800]),
        (Level::Mixed, SECOND / 2, [999, 955, 600]),
        (Level::Mixed, SECOND / 20, [999, 900, 340]),
        (Level::Cut, SECOND / 2, [999, 470, 0]),
        (Level::Google, 5 * SECOND, [680, 700, 620]),
        (Level::Google, SECOND / 2, [285, 290, 105]),
        (Level::Google, SECOND / 20, [200, 200, 0]),
    ];
    let mut short = Vec::new();
    for (level, pace, floor) in floors {
        let mut score = Score::default();
        for seed in 0..WORLDS {
            judge(&World::run(seed, 300, pace), level, seed, &mut score, |_| true);
        }
        let shares = [score.own, score.shared, score.hidden].map(thousandths);
        println!("{level:?}, {pace} µs apart: {shares:?} thousandths of {score:?}");
        assert!(score.wrong.is_empty(), "{} wrong, such as {}", score.wrong.len(), score.wrong[0]);
        if shares.iter().zip(floor).any(|(share, floor)| *share < floor) {
            short.push((level, pace, shares));
        }
    }
    assert!(short.is_empty(), "too few are named: {short:?}");
}

/// Two resources whose versions bound each other, on clocks that agree and on others, and one with an etcd of its own whose versions have numbers of the same size.
#[test]
fn versions_bound_each_other_where_they_are_of_one_etcd_and_nowhere_else() {
    let mut short = Vec::new();
    for (level, skew, pace, floor) in [
        (Level::Metadata, 0, SECOND / 10, [999, 978, 805]),
        (Level::Metadata, 0, SECOND / 50, [999, 965, 720]),
        (Level::Mixed, 0, SECOND / 20, [999, 840, 265]),
        (Level::Metadata, SECOND / 5, SECOND / 10, [999, 940, 685]),
    ] {
        let mut score = Score::default();
        for seed in 0..WORLDS / 3 {
            let world = World::of_two_etcds(seed, (800, pace), skew);
            let way = Way { seed, skew, late: 600 * SECOND, begins: i64::MIN };
            judge_so(&world, level, way, &mut score, |_| true);
        }
        let shares = [score.own, score.shared, score.hidden].map(thousandths);
        println!("two etcds, {level:?}, skew {skew}, {pace} µs apart: {shares:?} thousandths of {score:?}");
        assert!(score.wrong.is_empty(), "{} wrong, such as {}", score.wrong.len(), score.wrong[0]);
        if shares.iter().zip(floor).any(|(share, floor)| *share < floor) {
            short.push((level, skew, pace, shares));
        }
    }
    assert!(short.is_empty(), "too few are named: {short:?}");
}

/// An audit log that begins in the middle of it names nobody wrongly: who came before its beginning is not in it.
#[test]
fn nobody_is_named_for_what_came_before_an_audit_log() {
    for (level, pace, floor) in [
        (Level::Bodies, SECOND / 2, 285),
        (Level::Metadata, SECOND / 2, 280),
        (Level::Metadata, SECOND / 20, 180),
        (Level::Mixed, SECOND / 2, 265),
        (Level::Google, SECOND / 2, 70),
    ] {
        let mut score = Score::default();
        for seed in 0..WORLDS / 3 {
            let begins = START + 150 * pace;
            let way = Way { seed, skew: SECOND / 5, late: 60 * SECOND, begins };
            judge_so(&World::run(seed, 300, pace), level, way, &mut score, |_| true);
        }
        let all = [score.own, score.shared, score.hidden];
        let share = thousandths((all.iter().map(|of| of.0).sum(), all.iter().map(|of| of.1).sum()));
        println!("{level:?}, {pace} µs apart: {share} thousandths of {score:?}");
        assert!(score.wrong.is_empty(), "{} wrong, such as {}", score.wrong.len(), score.wrong[0]);
        assert!(share >= floor, "{level:?}, {pace} µs apart: {share} thousandths");
    }
}

/// A user whom the audit log lacks altogether, as a policy can leave one out. That breaks what the join stands on; what it has against
/// that keeps the wrong ones rare even where five objects are changed and deleted by ten others all the time.
#[test]
fn a_user_whom_the_audit_log_lacks_makes_few_wrong() {
    for (level, pace, lacks) in [
        (Level::Metadata, 5 * SECOND, 7),
        (Level::Metadata, SECOND / 2, 7),
        (Level::Metadata, SECOND / 2, 0),
        (Level::Bodies, SECOND / 2, 7),
        (Level::Mixed, SECOND / 2, 7),
    ] {
        let mut score = Score::default();
        for seed in 0..WORLDS {
            judge(&World::run(seed, 300, pace), level, seed, &mut score, |writer| writer != lacks);
        }
        let all = score.own.0 + score.shared.0 + score.hidden.0;
        println!("{level:?}, {pace} µs apart, without {lacks}: {} wrong of {all}", score.wrong.len());
        assert!(score.wrong.len() * 400 < all, "{} wrong of {all}, such as {}", score.wrong.len(), score.wrong[0]);
    }
}
