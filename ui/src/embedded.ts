// The one-file form: the page with the answers to its questions in it. It computes none: what was not asked when the file was
// made is refused, with the command that knows it.

import {
  Refused, type Changes, type Churn, type Clusters, type Data, type Difference, type Entries, type Entry, type Histogram, type Lanes, type ObjectPage, type Overview, type State, type Window,
} from "./api.ts";
import { objectName, quoted } from "./text.ts";
import { moment, parse } from "./time.ts";
import { ALL, filterKeys, type Filters } from "./url.ts";

export interface FileData {
  /** By the question; behind a slash stands the seq or the id that it is about. */
  answers: Record<string, unknown>;
  left_out: string | null;
}

export class Embedded implements Data {
  readonly embedded = true;
  readonly leftOut: string | null;

  constructor(private readonly file: FileData) {
    this.leftOut = file.left_out;
  }

  async clusters(): Promise<Clusters> {
    return { clusters: [], this: null };
  }

  async overview(): Promise<Overview> {
    return this.answer("overview", "decklog status");
  }

  async histogram(_window: Window, _buckets: number, filters: Filters): Promise<Histogram> {
    whole(filters);
    return this.answer("histogram", "decklog timeline");
  }

  async lanes(_window: Window, filters: Filters): Promise<Lanes> {
    whole(filters);
    return this.answer("lanes", "decklog timeline");
  }

  async entries(window: Window, filters: Filters, before: number | null): Promise<Entries> {
    whole(filters);
    const { entries } = this.answer<Entries>("entries", "decklog tail");
    const now = parse((await this.overview()).now);
    const [since, until] = [window.since === "" || window.since === ALL ? -Infinity : moment(window.since, now), window.until === "" ? Infinity : moment(window.until, now)];
    const inside = entries.filter((one) => parse(one.time) >= since && parse(one.time) <= until && (before === null || one.seq < before));
    return { entries: inside, more: false };
  }

  async entry(seq: number): Promise<Entry> {
    const found = this.answer<Entry>(`entry/${seq}`, `decklog show ${seq}`);
    // It leads to no entry for which the file had no room.
    const kept = (beside: number | null): number | null => (beside !== null && `entry/${beside}` in this.file.answers ? beside : null);
    return { ...found, previous: kept(found.previous), next: kept(found.next) };
  }

  async diff(from: number, to: number): Promise<Difference> {
    const [one, other] = [await this.entry(from), await this.entry(to)];
    const { summary } = other;
    const name = `${quoted(objectName(summary))}${summary.namespace ? ` -n ${quoted(summary.namespace)}` : ""}`;
    const command = one.summary.id === summary.id ? `decklog diff ${name} --from ${from} --to ${to}` : `decklog show ${to}`;
    throw missing("the difference of two entries", command);
  }

  async object(id: { resource: string; namespace: string; name: string }, at: string): Promise<ObjectPage> {
    const name = `${quoted(`${id.resource}/${id.name}`)}${id.namespace ? ` -n ${quoted(id.namespace)}` : ""}`;
    const answer = this.answer<ObjectPage>(`object/${id.resource}/${id.namespace}/${id.name}`, `decklog log ${name}`);
    // The file has the object as it was at its end.
    const isLast = at === "" || (/^\d+$/.test(at) && Number(at) >= (answer.at ?? 0));
    if (!isLast) throw missing("the object at that moment", `decklog get ${name} --at ${quoted(at)}`, "at");
    return answer;
  }

  async state(at: string, filters: Filters): Promise<State> {
    whole(filters);
    if (at !== "" && at !== NOW) throw missing("what was there at that moment", `decklog get KIND --at ${quoted(at)}`, "at");
    return this.answer("state", "decklog get KIND");
  }

  async changes(from: string, to: string, filters: Filters): Promise<Changes> {
    whole(filters);
    const isWhole = from === ALL && (to === "" || to === NOW);
    if (!isWhole) throw missing("what became of objects between those moments", `decklog diff --from ${quoted(from)}${to === "" ? "" : ` --to ${quoted(to)}`}`, "from");
    return this.answer("changes", "decklog diff");
  }

  async churn(): Promise<Churn> {
    return this.answer("writers", "decklog churn");
  }

  followUrl(): null {
    return null;
  }

  private answer<T>(question: string, command: string): T {
    const found = this.file.answers[question];
    if (found === undefined) throw missing("this answer", command);
    return found as T;
  }
}

/** The moment `now`, as the page writes it where nobody has chosen one. */
const NOW = "0s";

function missing(what: string, command: string, key: string | null = null): Refused {
  return new Refused(`${what} is not in this file: ask ${command}`, key, 404);
}

/** Refuses filters: what a file is about was chosen when it was made. */
function whole(filters: Filters): void {
  const [first] = filterKeys({ ...filters, quiet: false });
  if (first) throw new Refused("a file has what was chosen when it was made: decklog timeline makes another one, of other objects, types, areas or writers", first[0], 400);
}
