// As of a moment: what was there then.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { State } from "./api.ts";
import { useAnswer } from "./entry.tsx";
import { FilterBar } from "./filters.tsx";
import { Empty, ObjectLink, Problem, Text, Time } from "./parts.tsx";
import { allGaps, data, go, now, view } from "./store.ts";
import { counted } from "./text.ts";
import { brief, parse } from "./time.ts";
import { filterKeys } from "./url.ts";

export function StatePage(): JSX.Element {
  const { at, filters } = view.value;
  const text = useSignal(at);
  useEffect(() => {
    text.value = at;
  }, [at]);
  // Without a moment it is now, and now is not asked again each second.
  const wanted = at === "" ? "0s" : at;
  const narrow = filterKeys({ ...filters, type: [], area: [], where: "", quiet: false });
  const { answer, problem, stale, busy, again } = useAnswer<State>(JSON.stringify([wanted, narrow]), (signal) =>
    data.state(at === "" ? brief(now.peek()) : at, filters, signal),
  );
  const step = (by: number): void => {
    const from = answer ? parse(answer.at) : now.peek();
    go({ at: brief(from + by) });
  };
  // What lies in a gap, or after somebody watched last, is what was known before it.
  const time = answer ? parse(answer.at) : 0;
  const unknown = [...new Set(allGaps.value.filter((gap) => gap.from < time && time < gap.to).map((gap) => `${gap.resource ?? "everything"}${gap.namespace ? ` in ${gap.namespace}` : ""}`))];
  return (
    <section class={`list${stale && answer ? " stale" : ""}`} aria-label="As of" aria-busy={busy} tabIndex={0}>
      <div class="controls">
        <form
          class="as-of"
          onSubmit={(event) => {
            event.preventDefault();
            go({ at: text.value.trim() });
          }}
        >
          <label for="as-of">As of</label>
          <input
            id="as-of" value={text.value} spellcheck={false} placeholder="now, 2h, a time or an entry" aria-invalid={problem?.key === "at"}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
          <button type="submit">Show</button>
          {(["1h", "10m", "1m"] as const).map((name, index) => (
            <button key={name} type="button" title={`${name} earlier`} onClick={() => step(-([3600, 600, 60][index] ?? 60) * 1000)}>
              −{name}
            </button>
          ))}
          {(["1m", "10m"] as const).map((name, index) => (
            <button key={name} type="button" title={`${name} later`} onClick={() => step(([60, 600][index] ?? 60) * 1000)}>
              +{name}
            </button>
          ))}
        </form>
        <FilterBar only="state" />
      </div>
      {problem && <Problem of={problem} retry={again} />}
      {!answer && !problem && <p class="muted pad">Reading the log</p>}
      {answer && (
        <>
          <p class="pad">
            {counted(answer.objects.length, "object")} at <Time at={answer.at} />, entry <span class="num">{answer.seq}</span>
            {answer.truncated > 0 && <strong class="cut"> {counted(answer.truncated, "object")} more: narrow the filters to see them.</strong>}
          </p>
          {unknown.length > 0 && (
            <p class="pad evidence">
              Nobody knows what was there then of: <Text of={unknown.join(", ")} max={300} />
            </p>
          )}
          {answer.objects.length === 0 ? (
            <Empty title="Nothing was there, as far as the log knows" />
          ) : (
            <div class="scroll-x">
              <table class="grid">
                <caption class="sr">Objects at that moment</caption>
                <thead>
                  <tr>
                    <th scope="col">Object</th>
                    <th scope="col">Last change</th>
                    <th scope="col" class="right">Entry</th>
                    <th scope="col">Known by</th>
                    <th scope="col">uid</th>
                  </tr>
                </thead>
                <tbody>
                  {answer.objects.map((object) => (
                    <tr key={object.id}>
                      <td>
                        <ObjectLink of={object} at={answer.seq} />
                      </td>
                      <td>
                        {object.since === null ? <span class="muted">not known</span> : <Time at={object.since} />}
                      </td>
                      <td class="num right">
                        <button type="button" class="link" onClick={() => go({ entry: object.seq, against: null })}>
                          {object.seq}
                        </button>
                      </td>
                      <td class={object.how === "watched" ? "muted" : "evidence"}>{object.how}</td>
                      <td class="num muted">
                        <Text of={object.uid} max={40} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </>
      )}
    </section>
  );
}
