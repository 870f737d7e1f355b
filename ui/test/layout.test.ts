import assert from "node:assert/strict";
import { test } from "node:test";
import type { Bar, Lane, Mark, Summary } from "../src/api.ts";
import { append, badge, bars, BIN, clusters, gapModel, gapsOf, hit, layOut, LOOKS, lookOf, model, ROW, rowsBetween, toX, UNSEEN, zoom, type Layout } from "../src/layout.ts";
import { parse, rfc3339 } from "../src/time.ts";

const T0 = parse("2026-11-25T01:00:00Z");

function mark(seq: number, seconds: number, more: Partial<Mark> = {}): Mark {
  return { seq, time: rfc3339(T0 + seconds * 1000), type: "MODIFIED", evidence: "watched", areas: ["status"], managers: [], quiet: 0, ...more };
}

function lane(name: string, more: Partial<Lane> = {}): Lane {
  return {
    id: `pods/shop/${name}`, kind: "Pod", resource: "pods", namespace: "shop", name, owner: null, depth: 0,
    bars: [{ uid: "u1", from: rfc3339(T0), from_how: "watched", to: null, to_how: "open" }], marks: [], quiet: 0, ...more,
  };
}

const SCALE = { from: T0, to: T0 + 1_000_000, width: 1000 };

test("a badge says who wrote, where it fits", () => {
  const of = (marks: Mark[], room = 300): string => {
    const known = model(lane("a", { marks }));
    const [first] = clusters(known, SCALE);
    return first ? badge(known, first, room) : "";
  };
  const one = (more: Partial<Mark>, room?: number): string => of([mark(1, 100, { areas: ["spec"], ...more })], room);
  assert.equal(one({ managers: ["kubectl-set"] }), "kubectl-set");
  assert.equal(one({ managers: ["kubectl-set", "flux"] }), "kubectl-set +1");
  assert.equal(one({ managers: ["kubectl-set"] }, 30), "");
  assert.equal(one({ unnamed: "scale to 0 leaves no owner" }), "(scale to 0 leaves no ow…");
  assert.equal(one({ managers: ["kubelet"], areas: ["status"] }), "");
  assert.equal(one({ type: "DELETED", unnamed: "deletion" }), "");
  assert.equal(one({ type: "ADDED", managers: ["helm"], evidence: "inferred" }), "");
  assert.equal(one({ managers: ["a\u202eb"] }), "a\\u202eb");
  // What shares the place of a mark has writers of its own; who writes the status is none of them.
  const fight = [mark(1, 100, { areas: ["spec"], managers: ["argocd"] }), mark(2, 101, { areas: ["spec"], managers: ["keda"] }), mark(3, 102, { managers: ["kubelet"] })];
  assert.equal(of(fight), "argocd +1");
});

test("a mark looks like the most telling of its areas", () => {
  const look = (areas: string[], type = "MODIFIED"): string => lookOf({ type, areas });
  assert.equal(look(["managedFields", "metadata", "spec", "status"]), "spec");
  assert.equal(look(["data", "status"]), "data");
  assert.equal(look(["binaryData"]), "data");
  assert.equal(look(["rules", "status"]), "other");
  assert.equal(look(["metadata", "status"]), "metadata");
  assert.equal(look(["status"]), "status");
  assert.equal(look(["managedFields"]), "nothing");
  assert.equal(look(["spec"], "DELETED"), "DELETED");
});

test("marks that share a place are one, of the most telling look, and none is lost", () => {
  const marks = [mark(1, 102), mark(2, 103, { areas: ["spec"] }), mark(3, 104), mark(4, 500, { type: "QUIET", quiet: 7 })];
  const found = clusters(model(lane("a", { marks })), SCALE);
  assert.equal(found.reduce((sum, cluster) => sum + cluster.marks, 0), 4);
  assert.equal(found.length, 2);
  assert.equal(marks[found[0]!.mark]!.seq, 2);
  assert.equal(found[1]!.quiet, 7);
});

test("a cluster keeps its marks while the window moves", () => {
  const lanes = model(lane("a", { marks: Array.from({ length: 500 }, (_, index) => mark(index + 1, index * 1.7)) }));
  const members = (shift: number): string => clusters(lanes, { from: T0 + shift, to: T0 + 1_000_000 + shift, width: 1000 }).filter((one) => one.x > 50 && one.x < 700).map((one) => `${one.mark}:${one.marks}`).slice(10, 30).join();
  const [one, two] = [members(0), members(137)];
  assert.ok(two.includes(one.split(",").slice(2, 15).join()));
});

test("10,000 marks are clustered in the time of a frame", () => {
  const lanes = model(lane("a", { marks: Array.from({ length: 10_000 }, (_, index) => mark(index + 1, index / 10)) }));
  const found = clusters(lanes, SCALE);
  assert.ok(found.length <= 1000 / BIN + 3);
  assert.equal(found.reduce((sum, cluster) => sum + cluster.marks, 0), 10_000);
});

test("a bar is open where it was only listed, and hollow where it was inferred", () => {
  const gap = { from: T0 + 200_000, to: T0 + 400_000 };
  const listed = bars(model(lane("a", { bars: [{ uid: "u", from: rfc3339(T0), from_how: "listed", to: null, to_how: "open" }] })), SCALE, [], T0 + 900_000)[0]!;
  assert.ok(listed.open && listed.lasts);
  assert.equal(listed.end, 900);
  assert.deepEqual(listed.hollow, []);
  const inferred = bars(model(lane("a", { bars: [{ uid: "u", from: rfc3339(T0 + 300_000), from_how: "inferred", to: rfc3339(T0 + 600_000), to_how: "watched" }] })), SCALE, [gap], T0 + 900_000)[0]!;
  assert.ok(!inferred.open && !inferred.lasts);
  assert.deepEqual(inferred.hollow, [[300, 400]]);
  const ended = bars(model(lane("a", { bars: [{ uid: "u", from: rfc3339(T0), from_how: "watched", to: rfc3339(T0 + 400_000), to_how: "inferred" }] })), SCALE, [gap], T0 + 900_000)[0]!;
  assert.deepEqual(ended.hollow, [[200, 400]]);
  const before = bars(model(lane("a", { bars: [{ uid: "u", from: null, from_how: "before", to: null, to_how: "open" }] })), SCALE, [], T0 + 900_000)[0]!;
  assert.equal(before.x, -2);
});

test("bars that are out of the window are not drawn", () => {
  const ended = model(lane("a", { bars: [{ uid: "u", from: rfc3339(T0 - 10_000), from_how: "watched", to: rfc3339(T0 - 5_000), to_how: "watched" }] }));
  assert.deepEqual(bars(ended, SCALE, [], T0 + 900_000), []);
});

test("a gap concerns the lanes of its resource and namespace", () => {
  const gap = (resource: string | null, namespace: string) => gapModel({ resource, namespace, from: null, to: rfc3339(T0), why: "expired", seq: 1 });
  const concerns = (resource: string | null, namespace: string): boolean => gapsOf(lane("a", { bars: [] }), [gap(resource, namespace)]).length === 1;
  assert.ok(concerns(null, ""));
  assert.ok(concerns("pods", ""));
  assert.ok(concerns("pods", "shop"));
  assert.ok(!concerns("pods", "pay"));
  assert.ok(!concerns("deployments.apps", ""));
});

test("nobody asks what happened to an object before it was born", () => {
  const gap = gapModel({ resource: "pods", namespace: "", from: rfc3339(T0), to: rfc3339(T0 + 60_000), why: "expired", seq: 1 });
  const bar = (from: number | null, from_how: Bar["from_how"]): Bar => ({ uid: "u", from: from === null ? null : rfc3339(from), from_how, to: null, to_how: "open" });
  const cases: [Bar[], [number, number][]][] = [
    [[], [[0, 60]]],
    [[bar(null, "before")], [[0, 60]]],
    [[bar(T0 + 90_000, "watched")], []],
    [[bar(T0 + 30_000, "watched")], [[30, 60]]],
    [[bar(T0 + 30_000, "recovered")], [[30, 60]]],
    // It may be older than what found it.
    [[bar(T0 + 30_000, "listed")], [[0, 60]]],
    [[bar(T0 + 60_000, "inferred")], [[0, 60]]],
    [[bar(T0 - 1, "watched"), bar(T0 + 30_000, "watched")], [[0, 60]]],
  ];
  for (const [bars, expected] of cases) {
    const found = gapsOf(lane("a", { bars }), [gap]).map((one) => [(one.from - T0) / 1000, (one.to - T0) / 1000]);
    assert.deepEqual(found, expected, JSON.stringify(bars));
  }
});

test("causes stand in their order, with what follows from them folded away", () => {
  const lanes = [
    lane("node", { id: "n", namespace: "", role: "cause" }), lane("web", { id: "d", role: "cause" }), lane("rs", { id: "r", depth: 1 }), lane("p1", { id: "p1", depth: 2 }),
    lane("pay", { id: "x", namespace: "pay" }), lane("hit", { id: "h", depth: 1, role: "cause" }), lane("other", { id: "o", depth: 1 }),
  ];
  const ids = (toggled: string[], layout: Layout): string[] =>
    layOut(lanes, new Set(toggled), layout).rows.map((row) => (row.kind === "namespace" ? `[${row.namespace}]` : `${lanes[row.index]!.id}${row.folded ? `+${row.children}` : ""}${row.namespace && `@${row.namespace}`}`));
  const page = { inOrder: true, foldsDerived: true };
  assert.deepEqual(ids([], page), ["n", "d+2@shop", "x@pay", "h", "o"]);
  assert.deepEqual(ids(["d", "x"], page), ["n", "d@shop", "r+1", "x+2@pay"]);
  assert.deepEqual(ids([], { inOrder: true }), ["n", "d@shop", "r", "p1", "x@pay", "h", "o"]);
});

test("what a first list found is no change", () => {
  const found = lane("found", { id: "f", marks: [mark(1, 1, { type: "ADDED", evidence: "listed" })] });
  const came = lane("came", { id: "c", marks: [mark(2, 2, { type: "ADDED" })] });
  assert.equal(layOut([found, came], new Set(), { onlyChanged: true }).rows.length, 1);
});

test("rows are trees by namespace, and folding hides all that is owned", () => {
  const lanes = [
    lane("web", { id: "d" }), lane("rs1", { id: "r1", depth: 1 }), lane("p1", { id: "p1", depth: 2 }), lane("rs2", { id: "r2", depth: 1 }),
    lane("pay", { id: "x", namespace: "pay" }), lane("late", { id: "l" }),
  ];
  const ids = (folded: string[]): string[] => layOut(lanes, new Set(folded)).rows.map((row) => (row.kind === "namespace" ? `[${row.namespace}]` : `${lanes[row.index]!.id}${row.folded ? `+${row.children}` : ""}`));
  assert.deepEqual(ids([]), ["[shop]", "d", "r1", "p1", "r2", "l", "[pay]", "x"]);
  assert.deepEqual(ids(["d"]), ["[shop]", "d+3", "l", "[pay]", "x"]);
  assert.deepEqual(ids(["r1", "p1"]), ["[shop]", "d", "r1+1", "r2", "l", "[pay]", "x"]);
  const laid = layOut(lanes, new Set());
  assert.equal(laid.height, laid.rows.length * ROW);
  assert.deepEqual(rowsBetween(laid, ROW * 1.5, ROW * 3.5), [1, 4]);
  assert.equal(layOut([lane("a")], new Set()).rows.length, 1, "one namespace has no heading");
});

test("an owner stays for what it owns and that changed", () => {
  const lanes = [
    lane("web", { id: "d" }), lane("rs1", { id: "r1", depth: 1 }), lane("p1", { id: "p1", depth: 2 }), lane("rs2", { id: "r2", depth: 1 }),
    lane("p2", { id: "p2", depth: 2, marks: [mark(1, 1)] }), lane("quiet", { id: "q", marks: [mark(2, 2, { type: "QUIET", quiet: 3 })] }), lane("last", { id: "l", marks: [mark(3, 3)] }),
    lane("below", { id: "b", depth: 1 }),
  ];
  assert.deepEqual(layOut(lanes, new Set(), { onlyChanged: true }).rows.map((row) => (row.kind === "lane" ? lanes[row.index]!.id : "")), ["d", "r2", "p2", "l"]);
});

test("what nobody saw happen is hollow, and ranks as what it is", () => {
  const found = clusters(model(lane("a", { marks: [mark(1, 102, { type: "ADDED", evidence: "listed" }), mark(2, 103)] })), SCALE);
  assert.equal(found.length, 1);
  assert.equal(found[0]!.look, LOOKS.indexOf("ADDED") | UNSEEN);
});

test("a pointer finds marks first, then hatching, then the lane", () => {
  const models = [model(lane("a", { marks: [mark(1, 300)] }))];
  const laid = layOut(models.map((one) => one.lane), new Set());
  const gaps = [gapModel({ resource: "pods", namespace: "", from: rfc3339(T0 + 200_000), to: rfc3339(T0 + 400_000), why: "expired", seq: 9 })];
  const at = (x: number, y = 5) => hit(laid, models, gaps, SCALE, x, y);
  assert.equal(at(302)?.kind, "mark");
  assert.equal(at(350)?.kind, "gap");
  assert.equal(at(600)?.kind, "lane");
  assert.equal(at(302, ROW * 3), null);
});

test("zoom keeps what is under the pointer where it is", () => {
  const before = { from: 1000, to: 2000 };
  const after = zoom(before, 1250, 0.5);
  assert.deepEqual(after, { from: 1125, to: 1625 });
  const tiny = zoom({ from: 0, to: 0.1 }, 0.05, 0.01);
  assert.ok(tiny.to - tiny.from >= 0.1);
  assert.equal(toX({ ...after, width: 100 }, 1250), 25);
});

function entry(seq: number, more: Partial<Summary>): Summary {
  return {
    seq, time: rfc3339(T0 + seq * 1000), type: "MODIFIED", evidence: "watched", id: "pods/shop/a", kind: "Pod", resource: "pods", namespace: "shop", name: "a", uid: "u1",
    areas: ["status"], managers: [], quiet: false, line: "", ...more,
  };
}

test("an entry of the stream is added to its lane alone", () => {
  const lanes = [lane("b"), lane("a", { marks: [mark(1, 1)] })];
  const next = append(lanes, entry(2, {}));
  assert.ok(next);
  assert.equal(next[0], lanes[0]);
  assert.deepEqual(next[1]!.marks.map((one) => one.seq), [1, 2]);
  assert.equal(append(next, entry(2, {})), next, "a repeat changes nothing");
  assert.equal(append(next, entry(3, { type: "ACTOR", of: 2 })), next, "who sent a change is no change of the object");
});

test("the stream makes and ends bars", () => {
  const lanes = [lane("a")];
  const gone = append(lanes, entry(2, { type: "DELETED" }))!;
  assert.equal(gone[0]!.bars[0]!.to, entry(2, {}).time);
  const again = append(gone, entry(3, { type: "ADDED", uid: "u2" }))!;
  assert.deepEqual(again[0]!.bars.map((bar) => [bar.uid, bar.to === null]), [["u1", false], ["u2", true]]);
});

test("quiet entries of the stream are folded", () => {
  let lanes = [lane("a", { marks: [mark(1, 1)] })];
  for (const seq of [2, 3, 4]) lanes = append(lanes, entry(seq, { quiet: true }))!;
  assert.deepEqual(lanes[0]!.marks.map((one) => [one.seq, one.type, one.quiet]), [[1, "MODIFIED", 0], [4, "QUIET", 3]]);
  lanes = append(lanes, entry(5, {}))!;
  assert.deepEqual(lanes[0]!.marks.map((one) => [one.seq, one.type, one.quiet]), [[1, "MODIFIED", 0], [5, "MODIFIED", 3]]);
});

test("what the stream does not say is loaded", () => {
  assert.equal(append([lane("a")], entry(2, { type: "GAP" })), null);
  assert.equal(append([lane("a")], entry(2, { id: "pods/shop/new", type: "ADDED" })), null);
});
