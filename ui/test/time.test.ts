import assert from "node:assert/strict";
import { test } from "node:test";
import { brief, duration, moment, parse, resolve, rfc3339, span, ticks } from "../src/time.ts";

test("microseconds survive", () => {
  for (const text of ["2026-11-25T03:26:53.000000Z", "2026-11-25T03:26:53.123456Z", "2026-11-25T03:26:53.999999Z"]) assert.equal(rfc3339(parse(text)), text);
  assert.equal(brief(parse("2026-11-25T03:26:53.120000Z")), "2026-11-25T03:26:53.12Z");
  assert.equal(brief(parse("2026-11-25T03:20:00.000000Z")), "2026-11-25T03:20:00Z");
});

test("the short way of reading reads what the long one does", () => {
  for (const [short, long] of [["2026-02-28T23:59:59.999999Z", "2026-02-28T23:59:59.999999+00:00"], ["1999-12-31T00:00:00.000001Z", "1999-12-31T00:00:00.000001+00:00"]] as const) {
    assert.equal(parse(short), parse(long));
  }
  for (const text of ["2026-13-25T03:26:53.000000Z", "2026-11-25T25:26:53.000000Z", "2026-11-25T03:26:xx.000000Z", "xxxx-11-25T03:26:53.000000Z"]) assert.ok(Number.isNaN(parse(text)), text);
});

test("offsets are read, and what is no time is none", () => {
  assert.equal(parse("2026-11-25T04:26:53+01:00"), parse("2026-11-25T03:26:53Z"));
  for (const text of ["", "2h", "yesterday", "2026-11-25", "2026-11-25T03:26:53", "12"]) assert.ok(Number.isNaN(parse(text)), text);
});

test("durations are those of the command line", () => {
  assert.equal(duration("2h"), 7_200_000);
  assert.equal(duration("1h30m"), 5_400_000);
  assert.equal(duration("7d"), 604_800_000);
  for (const text of ["", "h", "2 h", "--2h", "+2h", "2h-", "-", "2x"]) assert.ok(Number.isNaN(duration(text)), text);
  for (const text of ["10m", "-10m", "\u221210m", "\u201310m"]) assert.equal(moment(text, 1_000_000), 400_000, text);
});

test("spans have two units at most", () => {
  assert.equal(span(5_400_000), "1h 30m");
  assert.equal(span(90_061_000), "1d 1h");
  assert.equal(span(250), "250ms");
  assert.equal(span(0.004), "4µs");
});

test("ticks are round, apart, and within", () => {
  const from = parse("2026-11-25T01:03:00Z");
  for (const size of [1, 1000, 60_000, 3_600_000, 86_400_000, 30 * 86_400_000]) {
    const found = ticks(from, from + size, 1000, "utc");
    assert.ok(found.length >= 2 && found.length <= 12, `${size}: ${found.length}`);
    for (const tick of found) assert.ok(tick.time >= from && tick.time <= from + size);
    for (let at = 1; at < found.length; at += 1) assert.ok(((found[at]!.time - found[at - 1]!.time) / size) * 1000 >= 89);
  }
  assert.deepEqual(ticks(from, from + 3_600_000, 500, "utc").map((tick) => tick.label), ["01:15", "01:30", "01:45", "02:00"]);
});

test("what people write into a field is the time that it means", () => {
  const now = parse("2026-03-01T09:30:00Z");
  const read = (text: string): string => resolve(text, now, "utc");
  assert.equal(read(" 9:15 "), "2026-03-01T09:15:00Z");
  assert.equal(read("09:15:07"), "2026-03-01T09:15:07Z");
  assert.equal(read("today"), "2026-03-01T00:00:00Z");
  assert.equal(read("yesterday"), "2026-02-28T00:00:00Z");
  assert.equal(read("yesterday 23:59"), "2026-02-28T23:59:00Z");
  assert.equal(read("2026-02-03"), "2026-02-03T00:00:00Z");
  assert.equal(read("2026-02-03 10:30"), "2026-02-03T10:30:00Z");
  assert.equal(read("2026-02-03T10:30"), "2026-02-03T10:30:00Z");
  assert.equal(read("now"), "");
  // So long ago, with a minus or without.
  for (const text of ["2h", "-2h", " - 2h ", "\u22122h", "\u20132h"]) assert.equal(read(text), "2h", text);
  assert.equal(read("9:15:07.25"), "2026-03-01T09:15:07.25Z");
  // What is to come is a time as well, and who is asked for it says so: it must not become one of another zone.
  assert.equal(read("10:31"), "2026-03-01T10:31:00Z");
  // What moves with the present, what is exact, a seq, and what means nothing.
  for (const text of ["", "2h", "all", "17", "2026-02-03T10:30:00Z", "2026-02-03T10:30:00+01:00", "soon", "-", "-now", "-9:15", "+2h", "24:00", "9:75", "2026-02-31", "2025-13-05", "2026-00-10", "yesterday10:30"]) {
    assert.equal(read(text), text);
  }
});

test("what people write is of the zone that they look at", () => {
  // In UTC the two zones would be one.
  const before = process.env["TZ"];
  process.env["TZ"] = "America/New_York";
  const now = new Date(2026, 2, 1, 9, 30).getTime();
  assert.notEqual(new Date(now).getTimezoneOffset(), 0);
  assert.equal(parse(resolve("9:15", now, "local")), new Date(2026, 2, 1, 9, 15).getTime());
  assert.equal(parse(resolve("yesterday 22:10", now, "local")), new Date(2026, 1, 28, 22, 10).getTime());
  if (before === undefined) delete process.env["TZ"];
  else process.env["TZ"] = before;
});
