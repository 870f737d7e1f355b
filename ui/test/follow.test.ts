import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { Summary } from "../src/api.ts";
import { follow, splitCursor } from "../src/follow.ts";

/** A server's side of a stream, that can be cut. */
class Stream extends EventTarget {
  static all: Stream[] = [];
  closed = false;
  constructor(readonly url: string) {
    super();
    Stream.all.push(this);
  }
  close(): void {
    this.closed = true;
  }
  entry(seq: number, id = `e:${seq}`): void {
    this.dispatchEvent(new MessageEvent("entry", { data: JSON.stringify({ seq }), lastEventId: id }));
  }
  tell(type: string, data: unknown): void {
    this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(data) }));
  }
}

function begin(from = "e:10") {
  Stream.all = [];
  const seen: number[] = [];
  const reloads: string[] = [];
  const links: string[] = [];
  const follower = follow(from, (after) => `follow?after=${after}`, {
    entry: (entry: Summary) => void seen.push(entry.seq), reload: (why) => void reloads.push(why), link: (state) => void links.push(state),
  }, (url) => new Stream(url) as unknown as EventSource);
  return { seen, reloads, links, follower };
}

test("a reconnect goes on after the last entry, and nothing comes twice", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { seen, links } = begin();
  Stream.all[0]!.dispatchEvent(new Event("open"));
  Stream.all[0]!.entry(11);
  Stream.all[0]!.entry(12);
  Stream.all[0]!.dispatchEvent(new Event("error"));
  assert.ok(Stream.all[0]!.closed);
  mock.timers.tick(60_000);
  assert.equal(Stream.all[1]!.url, "follow?after=e:12");
  Stream.all[1]!.dispatchEvent(new Event("open"));
  Stream.all[1]!.entry(12);
  Stream.all[1]!.entry(13);
  assert.deepEqual(seen, [11, 12, 13]);
  assert.deepEqual(links, ["connecting", "live", "connecting", "live"]);
  mock.timers.reset();
});

test("a stream that does not come back is lost, until it does", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { links } = begin();
  Stream.all[0]!.dispatchEvent(new Event("open"));
  for (let turn = 0; turn < 3; turn += 1) {
    Stream.all[turn]!.dispatchEvent(new Event("error"));
    mock.timers.tick(60_000);
  }
  assert.equal(links.at(-1), "lost");
  Stream.all[3]!.dispatchEvent(new Event("open"));
  assert.equal(links.at(-1), "live");
  mock.timers.reset();
});

test("the cursor moves where nothing passes", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  begin();
  Stream.all[0]!.tell("at", { cursor: "e:40" });
  Stream.all[0]!.tell("at", { cursor: "other:90" });
  Stream.all[0]!.tell("at", { cursor: "e:20" });
  Stream.all[0]!.dispatchEvent(new Event("error"));
  mock.timers.tick(60_000);
  assert.equal(Stream.all[1]!.url, "follow?after=e:40");
  mock.timers.reset();
});

test("another epoch ends the stream, and the window is loaded", () => {
  const { seen, reloads } = begin();
  Stream.all[0]!.tell("reload", { why: "epoch" });
  Stream.all[0]!.entry(11);
  assert.deepEqual(reloads, ["epoch"]);
  assert.deepEqual(seen, []);
  assert.ok(Stream.all[0]!.closed);
});

test("a stopped follower is silent", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { seen, follower } = begin();
  follower.stop();
  Stream.all[0]!.entry(11);
  Stream.all[0]!.dispatchEvent(new Event("error"));
  mock.timers.tick(60_000);
  assert.equal(Stream.all.length, 1);
  assert.deepEqual(seen, []);
  mock.timers.reset();
});

test("a cursor is an epoch and a seq", () => {
  assert.deepEqual(splitCursor("3f9a:12"), { epoch: "3f9a", seq: 12 });
  assert.deepEqual(splitCursor("a:b:12"), { epoch: "a:b", seq: 12 });
});

test("a way that is cut without a word is noticed", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { links } = begin();
  Stream.all[0]!.dispatchEvent(new Event("open"));
  for (let turn = 0; turn < 10; turn += 1) {
    mock.timers.tick(20_000);
    Stream.all[0]!.tell("at", { cursor: "e:11" });
  }
  assert.deepEqual(Stream.all.map((one) => one.closed), [false], "it speaks");
  mock.timers.tick(80_000);
  mock.timers.tick(1000);
  assert.deepEqual(Stream.all.map((one) => one.closed), [true, false], "it has said nothing for long");
  // And who does not answer at all is lost.
  mock.timers.tick(80_000);
  assert.equal(links.at(-1), "lost");
  mock.timers.reset();
});
