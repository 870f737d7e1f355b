// The stream of new entries. Nothing is lost in a reconnect, because it goes on after the last entry that came; nothing comes
// twice, because what is not newer than that one is dropped.

import type { Summary } from "./api.ts";

/** `turn`: other windows have the streams, and this one asks now and then. */
export type Link = "off" | "connecting" | "live" | "lost" | "turn";

export interface Follower {
  stop(): void;
}

export interface Heard {
  entry(entry: Summary, cursor: string): void;
  /** The stream cannot go on from where it was: load the window again. */
  reload(why: string): void;
  link(state: Link): void;
}

/** `EPOCH:SEQ`. An epoch has no colon, but what stands before the last one is it. */
export function splitCursor(cursor: string): { epoch: string; seq: number } {
  const at = cursor.lastIndexOf(":");
  return { epoch: cursor.slice(0, at), seq: Number(cursor.slice(at + 1)) };
}

/** What of an EventSource is used, so that a test can give another. */
export type Open = (url: string) => EventSource;

/** The server speaks at least every 30 seconds. */
const SILENCE = 75_000;

export function follow(from: string, url: (after: string) => string, heard: Heard, open: Open = (address) => new EventSource(address)): Follower {
  let cursor = from;
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let tries = 0;
  let stopped = false;

  const moved = (to: string): void => {
    if (splitCursor(to).epoch === splitCursor(cursor).epoch && splitCursor(to).seq > splitCursor(cursor).seq) cursor = to;
  };

  // A way that is cut without a word raises no error: the server says where it is again and again, and silence is a loss.
  let silence: ReturnType<typeof setTimeout> | null = null;
  const alive = (stream: EventSource): void => {
    if (silence !== null) clearTimeout(silence);
    silence = setTimeout(() => stream === source && stream.dispatchEvent(new Event("error")), SILENCE);
  };

  const connect = (): void => {
    if (stopped) return;
    // A stream ends now and then by intention: the first try after that is nothing to speak of.
    heard.link(tries <= 1 ? "connecting" : "lost");
    const stream = open(url(cursor));
    source = stream;
    alive(stream);
    let opened = Infinity;
    stream.addEventListener("open", () => {
      opened = Date.now();
      heard.link("live");
      alive(stream);
    });
    stream.addEventListener("entry", (event) => {
      if (stopped || stream !== source) return;
      alive(stream);
      const message = event as MessageEvent<string>;
      const entry = JSON.parse(message.data) as Summary;
      if (entry.seq <= splitCursor(cursor).seq) return;
      cursor = message.lastEventId !== "" ? message.lastEventId : `${splitCursor(cursor).epoch}:${entry.seq}`;
      heard.entry(entry, cursor);
    });
    stream.addEventListener("at", (event) => {
      if (stopped || stream !== source) return;
      alive(stream);
      moved((JSON.parse((event as MessageEvent<string>).data) as { cursor: string }).cursor);
    });
    stream.addEventListener("reload", (event) => {
      if (stopped || stream !== source) return;
      stop();
      heard.reload((JSON.parse((event as MessageEvent<string>).data) as { why: string }).why);
    });
    stream.addEventListener("error", () => {
      if (stopped || stream !== source) return;
      // The browser would try again by itself, but after the cursor of the first address, and not at all after some answers.
      stream.close();
      source = null;
      // One that ends as soon as it has begun is no success: it is asked for less and less often.
      if (Date.now() - opened > 5000) tries = 0;
      tries += 1;
      if (tries > 1) heard.link("lost");
      timer = setTimeout(connect, tries === 1 ? 100 : Math.min(15_000, 250 * 2 ** Math.min(tries, 6)));
    });
  };

  const stop = (): void => {
    stopped = true;
    if (timer !== null) clearTimeout(timer);
    if (silence !== null) clearTimeout(silence);
    source?.close();
    source = null;
  };

  connect();
  return { stop };
}

// ---- side by side ------------------------------------------------------------------------------------------------------

/** A browser gives one place six connections, and a stream keeps one. So many windows have one; two are left for questions. */
const STREAMS = 4;
/** How often a window without a stream asks. */
const TURN = 15_000;

let release: (() => void) | null = null;
let users = 0;

/** Takes the right to a stream, unless other windows have them all. A browser without locks, as without HTTPS, counts nothing. */
async function take(): Promise<boolean> {
  const locks = navigator.locks as LockManager | undefined;
  for (let number = 0; locks && release === null && number < STREAMS; number += 1) {
    const got = await new Promise<(() => void) | null>((resolve) => {
      const hold = (lock: Lock | null): Promise<void> | null => (lock ? new Promise((end) => resolve(end)) : (resolve(null), null));
      locks.request(`decklog-stream-${number}`, { ifAvailable: true }, hold).catch(() => resolve(() => {}));
    });
    // It may have been taken twice at once.
    if (release === null) release = got;
    else got?.();
  }
  return !locks || release !== null;
}

/** Gives the right back, but not between a stream and the next. */
function leave(): void {
  setTimeout(() => {
    if (users > 0) return;
    release?.();
    release = null;
  }, 1000);
}

/** Follows where this window has the right to, and has the window loaded now and then where it has not. */
export function followInTurn(from: string, url: (after: string) => string, heard: Heard): Follower {
  let follower: Follower | null = null;
  let timer: ReturnType<typeof setInterval> | undefined;
  let stopped = false;
  users += 1;
  heard.link("connecting");
  void take().then((mine) => {
    if (stopped) return leave();
    if (mine) return void (follower = follow(from, url, heard));
    heard.link("turn");
    // Until it is stopped: where a question fails, the next one may not.
    timer = setInterval(() => heard.reload("turn"), TURN);
  });
  return {
    stop() {
      if (stopped) return;
      stopped = true;
      users -= 1;
      clearInterval(timer);
      follower?.stop();
      leave();
    },
  };
}
