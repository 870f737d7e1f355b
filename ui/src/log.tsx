// The same window and filters as a list: `decklog tail`, for reading and for screen readers.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { Summary } from "./api.ts";
import { Empty, EntryTable, Problem, useLoad } from "./parts.tsx";
import { FIELDS } from "./filters.tsx";
import { changes, data, failure, view, type Failure } from "./store.ts";
import { counted } from "./text.ts";
import { filterKeys, isRow } from "./url.ts";

export function LogPage(): JSX.Element {
  const { since, until, filters } = view.value;
  const entries = useSignal<Summary[] | null>(null);
  const more = useSignal(false);
  const reached = useSignal<number | null>(null);
  // What did not come, and where it would have gone on from.
  const problem = useSignal<(Failure & { before: number | null }) | null>(null);
  const seen = useSignal(0);
  const again = useSignal(0);
  const reading = useSignal(true);
  const asked = useRef(0);
  const key = JSON.stringify([since, until, filterKeys(filters)]);
  const shownKey = useRef("");
  const read = async (before: number | null, signal?: AbortSignal): Promise<void> => {
    asked.current += 1;
    const mine = asked.current;
    reading.value = true;
    try {
      if (before === null) seen.value = changes.peek();
      const answer = await data.entries({ since, until }, filters, before, signal);
      // Of another filter, or of a page that was asked for twice.
      if (mine !== asked.current) return;
      shownKey.current = key;
      entries.value = before === null ? answer.entries : [...(entries.peek() ?? []), ...answer.entries];
      more.value = answer.more;
      reached.value = answer.reached ?? answer.entries[answer.entries.length - 1]?.seq ?? null;
      problem.value = null;
    } catch (error) {
      if (signal?.aborted || mine !== asked.current) return;
      const found = { ...failure(error), before };
      problem.value = found;
      // What is there already stays there when an older page does not come. Nothing is better than what another filter found.
      if (shownKey.current !== key || (before === null && !found.outage)) entries.value = null;
    }
    reading.value = false;
  };
  useLoad(`${again.value} ${key}`, (signal) => read(null, signal));
  const shown = entries.value?.filter((entry) => isRow(entry, filters)) ?? null;
  const fresh = changes.value - seen.value;
  const failed = problem.value;
  const trouble = failed && (FIELDS.includes(failed.key ?? "") ? <Empty title="Nothing is shown while a filter is wrong" /> : <Problem of={failed} retry={() => void read(failed.before)} />);
  const older = failed !== null && failed.before !== null;
  return (
    <section class="list" aria-label="Log" aria-busy={reading.value} tabIndex={0}>
      {!older && trouble}
      {!shown && !failed && <p class="muted pad">Reading the log</p>}
      {shown && fresh > 0 && (
        <button type="button" class="fresh" onClick={() => (again.value += 1)}>
          Show {counted(fresh, "new entry", "new entries")}
        </button>
      )}
      {shown && shown.length === 0 && !more.value && <Empty title="No entry in this window passes the filters" />}
      {shown && shown.length > 0 && <EntryTable entries={shown} caption="Entries, newest first" />}
      {older && trouble}
      {shown && more.value && !older && (
        <button type="button" class="older" disabled={reading.value} onClick={() => void read(reached.value)}>
          Show older entries
        </button>
      )}
    </section>
  );
}
