// Times are milliseconds since 1970 as floating point numbers: exact to a quarter of a microsecond until 2100.

export type Zone = "utc" | "local";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The days that were read last: entries of one answer are of few days. */
const days = new Map<string, number>();

function dayOf(text: string): number {
  let start = days.get(text);
  if (start === undefined) {
    start = Date.parse(`${text}T00:00:00Z`);
    if (days.size > 1000) days.clear();
    days.set(text, start);
  }
  return start;
}

/** Reads RFC 3339. `Date.parse` drops what is below a millisecond, so the fraction is read here. NaN where it is no time. */
export function parse(text: string): number {
  // As the API writes it, without a regular expression: an answer has ten thousand of them.
  if (text.length === 27 && text[26] === "Z" && text[10] === "T" && text[13] === ":" && text[16] === ":" && text[19] === ".") {
    const pair = (at: number): number => (text.charCodeAt(at) - 48) * 10 + text.charCodeAt(at + 1) - 48;
    const [hours, minutes, seconds, micros] = [pair(11), pair(14), pair(17), pair(20) * 10_000 + pair(22) * 100 + pair(24)];
    if (hours < 24 && minutes < 60 && seconds < 60) return dayOf(text.slice(0, 10)) + ((hours * 60 + minutes) * 60 + seconds) * 1000 + micros / 1000;
  }
  const match = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.exec(text.trim());
  if (!match) return NaN;
  const seconds = Date.parse(`${match[1]}T${match[2]}${(match[4] ?? "Z").toUpperCase()}`);
  return match[3] ? seconds + Math.round(Number(match[3]) * 1e6) / 1e3 : seconds;
}

/** RFC 3339 in UTC with microseconds, as the API has it. */
export function rfc3339(time: number): string {
  const whole = Math.floor(time / SECOND) * SECOND;
  const micros = Math.min(999_999, Math.round((time - whole) * 1000));
  return `${new Date(whole).toISOString().slice(0, 19)}.${String(micros).padStart(6, "0")}Z`;
}

/** The shortest spelling of the same time: what a URL carries. */
export function brief(time: number): string {
  return rfc3339(time).replace(/\.?0+Z$/, "Z");
}

const UNITS: Record<string, number> = { us: 1e-3, ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY, w: 7 * DAY };

/** `2h`, `1h30m`, `7d`, and the same with a minus before it, in milliseconds. NaN where it is no duration. */
export function duration(text: string): number {
  if (!/^[-\u2212\u2013]?(\d+(us|ms|s|m|h|d|w))+$/.test(text)) return NaN;
  let sum = 0;
  for (const match of text.matchAll(/(\d+)(us|ms|s|m|h|d|w)/g)) sum += Number(match[1]) * (UNITS[match[2] ?? ""] ?? NaN);
  return sum;
}

/** A time or a duration that is counted back from `now`. */
export function moment(text: string, now: number): number {
  const back = duration(text);
  return Number.isNaN(back) ? parse(text) : now - back;
}

/**
 * What somebody wrote into a field: words for a day, and times of day, become the time that they mean in the zone that is shown,
 * so that the address means the same to others and tomorrow. Everything else stays as it is.
 */
export function resolve(text: string, now: number, zone: Zone): string {
  // What is counted back is counted back without a minus as well.
  const wanted = text.trim().replace(/^[-\u2212\u2013]\s*(?=\d+[a-z])/, "");
  if (wanted === "now") return "";
  const match = /^(today|yesterday|\d{4}-\d\d-\d\d)?(?:^|[ T]|$)(?:(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?$/.exec(wanted);
  if (!match || wanted === "") return wanted;
  const [, day, hours, minutes, seconds] = match;
  const today = full(now, zone).slice(0, 10);
  const date = day === undefined || day === "today" || day === "yesterday" ? today : day;
  const [year, month, date_] = date.split("-").map(Number) as [number, number, number];
  const whole = Math.floor(Number(seconds ?? 0));
  const clock: [number, number, number] = [Number(hours ?? 0), Number(minutes ?? 0), whole];
  if (clock[0] > 23 || clock[1] > 59 || whole > 59) return wanted;
  const of = date_ - (day === "yesterday" ? 1 : 0);
  const time = zone === "utc" ? Date.UTC(year, month - 1, of, ...clock) : new Date(year, month - 1, of, ...clock).getTime();
  // The 31st of February is no day, and a 13th month is none.
  const isDay = new Date(Date.UTC(year, month - 1, date_)).toISOString().slice(0, 10) === date;
  return Number.isNaN(time) || !isDay ? wanted : brief(time + (Number(seconds ?? 0) - whole) * SECOND);
}

/** A length of time in two units at most: `2h 30m`. */
export function span(milliseconds: number): string {
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)}µs`;
  if (milliseconds < SECOND) return `${Math.round(milliseconds)}ms`;
  const parts: string[] = [];
  let rest = Math.round(milliseconds / SECOND) * SECOND;
  for (const [unit, size] of [["d", DAY], ["h", HOUR], ["m", MINUTE], ["s", SECOND]] as const) {
    const number = Math.floor(rest / size);
    if (number > 0) parts.push(`${number}${unit}`);
    rest -= number * size;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

interface Parts {
  date: string;
  clock: string;
  fraction: string;
}

function parts(time: number, zone: Zone): Parts {
  const offset = zone === "local" ? -new Date(time).getTimezoneOffset() * MINUTE : 0;
  const text = rfc3339(time + offset);
  return { date: text.slice(0, 10), clock: text.slice(11, 19), fraction: text.slice(20, 26) };
}

export function clock(time: number, zone: Zone): string {
  return parts(time, zone).clock;
}

export function date(time: number, zone: Zone): string {
  return parts(time, zone).date;
}

/** Date and time of day to the second, or with its fraction where that was asked for. */
export function full(time: number, zone: Zone, fraction = false): string {
  if (Number.isNaN(time)) return "no time";
  const part = parts(time, zone);
  return `${part.date} ${part.clock}${fraction ? `.${part.fraction}` : ""}`;
}

/** What stands beside a time: `UTC`, or the offset of local time at that moment. */
export function zoneName(zone: Zone, at: number): string {
  if (zone === "utc") return "UTC";
  const offset = -new Date(at).getTimezoneOffset();
  const sign = offset < 0 ? "-" : "+";
  const hours = String(Math.floor(Math.abs(offset) / 60)).padStart(2, "0");
  return `UTC${sign}${hours}:${String(Math.abs(offset) % 60).padStart(2, "0")}`;
}

const STEPS = [
  1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 5, 10, 50, 100, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
  10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 365 * DAY,
];

export interface Tick {
  time: number;
  label: string;
  /** The first tick of a day: it shows the date. */
  day: boolean;
}

/** Ticks at round times of the zone, no closer than `apart` pixels. */
export function ticks(from: number, to: number, width: number, zone: Zone, apart = 90): Tick[] {
  if (!(to > from) || width <= 0) return [];
  const least = ((to - from) / width) * apart;
  const step = STEPS.find((candidate) => candidate >= least) ?? STEPS[STEPS.length - 1] ?? DAY;
  // Days and hours of local time are round in local time. The offset at the middle serves for all: a change of the clock
  // moves labels, which show what the clock shows, and no tick.
  const offset = zone === "local" ? -new Date((from + to) / 2).getTimezoneOffset() * MINUTE : 0;
  const found: Tick[] = [];
  for (let index = Math.ceil((from + offset) / step); index * step <= to + offset && found.length < 200; index += 1) {
    // A day of local time begins when the clock says so, also across a change of the clock.
    const middle = index * step - offset;
    const shift = zone === "local" && step >= DAY ? offset + new Date(middle).getTimezoneOffset() * MINUTE : 0;
    const time = middle + shift;
    const part = parts(time, zone);
    const day = part.clock === "00:00:00" && step >= MINUTE;
    let label = part.clock;
    if (day || step >= DAY) label = part.date.slice(5);
    else if (step >= MINUTE) label = part.clock.slice(0, 5);
    else if (step < 1) label = `${part.clock.slice(6)}.${part.fraction}`;
    else if (step < SECOND) label = `${part.clock.slice(3)}.${part.fraction.slice(0, 3)}`;
    found.push({ time, label, day });
  }
  return found;
}
