// The same window and filters as a list: `decklog tail`, for reading and for screen readers.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { Refused, type Summary } from "./api.ts";
import { Empty, EntryTable, Problem, useLoad } from "./parts.tsx";
import { FIELDS } from "./filters.tsx";
import { changes, data, view, type Failure } from "./store.ts";
import { counted } from "./text.ts";
import { filterKeys } from "./url.ts";

export function LogPage(): JSX.Element {
  const { since, until, filters } = view.value;
  const entries = useSignal<Summary[] | null>(null);
  const more = useSignal(false);
  const reached = useSignal<number | null>(null);
  const problem = useSignal<Failure | null>(null);
  const seen = useSignal(0);
  const again = useSignal(0);
  const reading = useSignal(false);
  const asked = useRef(0);
  const read = async (before: number | null, signal?: AbortSignal): Promise<void> => {
    asked.current += 1;
    const mine = asked.current;
    reading.value = true;
    try {
      if (before === null) seen.value = changes.peek();
      const answer = await data.entries({ since, until }, filters, before, signal);
      // Of another filter, or of a page that was asked for twice.
      if (mine !== asked.current) return;
      entries.value = before === null ? answer.entries : [...(entries.peek() ?? []), ...answer.entries];
      more.value = answer.more;
      reached.value = answer.reached ?? answer.entries[answer.entries.length - 1]?.seq ?? null;
      problem.value = null;
    } catch (error) {
      if (signal?.aborted || mine !== asked.current) return;
      problem.value = { message: error instanceof Error ? error.message : String(error), key: error instanceof Refused ? error.key : null };
      // What is there already stays there when an older page does not come.
      if (before === null) entries.value = null;
    }
    reading.value = false;
  };
  useLoad(JSON.stringify([since, until, filterKeys(filters), again.value]), (signal) => read(null, signal));
  const shown = entries.value;
  const fresh = changes.value - seen.value;
  return (
    <section class="list" aria-label="Log" tabIndex={0}>
      {problem.value &&
        (FIELDS.includes(problem.value.key ?? "") ? <Empty title="Nothing is shown while a filter is wrong" /> : <Problem of={problem.value} retry={() => void read(null)} />)}
      {!shown && !problem.value && <p class="muted pad">Reading the log</p>}
      {shown && fresh > 0 && (
        <button type="button" class="fresh" onClick={() => (again.value += 1)}>
          Show {counted(fresh, "new entry", "new entries")}
        </button>
      )}
      {shown && shown.length === 0 && !more.value && <Empty title="No entry in this window passes the filters" />}
      {shown && shown.length > 0 && <EntryTable entries={shown} caption="Entries, newest first" />}
      {shown && more.value && (
        <button type="button" class="older" disabled={reading.value} onClick={() => void read(reached.value)}>
          Show older entries
        </button>
      )}
    </section>
  );
}
