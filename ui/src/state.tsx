// As of a moment: what was there then, and what had become of objects since another one.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Changes, State } from "./api.ts";
import { ChangesList } from "./changes.tsx";
import { useAnswer } from "./entry.tsx";
import { FilterBar } from "./filters.tsx";
import { Empty, ObjectLink, Problem, Text, Time } from "./parts.tsx";
import { data, go, now, view } from "./store.ts";
import { counted } from "./text.ts";
import { brief, parse, resolve } from "./time.ts";
import { ALL, filterKeys } from "./url.ts";

/** The moments that a file has: its end, and all of its time. */
function FileMoments({ from }: { from: string }): JSX.Element {
  return (
    <div class="as-of" role="group" aria-label="Moments of this file">
      <button type="button" aria-pressed={from === ""} onClick={() => go({ from: "", at: "" })}>
        At the end of the file
      </button>
      <button type="button" aria-pressed={from === ALL} onClick={() => go({ from: ALL, at: "" })}>
        Changed within it
      </button>
    </div>
  );
}

export function StatePage(): JSX.Element {
  const { at, from, filters, zone } = view.value;
  const text = useSignal(at);
  const since = useSignal(from);
  useEffect(() => {
    text.value = at;
    since.value = from;
  }, [at, from]);
  // Without a moment it is now, and now is not asked again each second.
  const wanted = at === "" ? "0s" : at;
  const narrow = filterKeys({ ...filters, type: [], area: [], by: [], where: "", quiet: false });
  const { answer, problem, stale, busy, again } = useAnswer<State | Changes>(JSON.stringify([from, wanted, narrow]), (signal) =>
    from === "" ? data.state(at, filters, signal) : data.changes(from, at, filters, signal),
  );
  const between = answer && "to" in answer ? answer : null;
  const then = answer && "at" in answer ? answer : null;
  const time = parse(then?.at ?? between?.to.at ?? "");
  const step = (by: number): void => go({ at: brief((answer ? time : now.peek()) + by) });
  // What lies in a gap, or before somebody watched, or after, is what was known before it.
  const gaps = then?.unknown ?? (between ? [...between.from.unknown, ...between.to.unknown] : []);
  const unknown = [...new Set(gaps.map((gap) => `${gap.resource ?? "everything"}${gap.namespace ? ` in ${gap.namespace}` : ""}`))];
  return (
    <section class={`list${stale && answer ? " stale" : ""}`} aria-label="As of" aria-busy={busy} tabIndex={0}>
      <div class="controls">
        {data.embedded ? <FileMoments from={from} /> : <form
          class="as-of"
          onSubmit={(event) => {
            event.preventDefault();
            go({ at: resolve(text.value, now.peek(), zone), from: resolve(since.value, now.peek(), zone) });
          }}
        >
          <label for="as-of">As of</label>
          <input
            id="as-of" value={text.value} spellcheck={false} placeholder="now, 2h, a time or an entry" aria-invalid={problem?.key === "at" || problem?.key === "to"}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
          <label for="changed-since">changed since</label>
          <input
            id="changed-since" value={since.value} spellcheck={false} placeholder="1h: what became of objects" aria-invalid={problem?.key === "from"}
            onInput={(event) => (since.value = event.currentTarget.value)}
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
        </form>}
        <FilterBar only="state" />
      </div>
      {problem && <Problem of={problem} retry={again} />}
      {!answer && !problem && <p class="muted pad">Reading the log</p>}
      {answer && unknown.length > 0 && (
        <p class="pad evidence">
          decklog was not watching these then: <Text of={unknown.join(", ")} max={300} />
        </p>
      )}
      {between && <ChangesList answer={between} />}
      {then && (
        <>
          <p class="pad">
            {counted(then.objects.length, "object")} at <Time at={then.at} />, entry <span class="num">{then.seq}</span>
            {then.truncated > 0 && <strong class="cut"> {counted(then.truncated, "object")} more: narrow the filters to see them.</strong>}
          </p>
          {then.objects.length === 0 ? (
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
                  {then.objects.map((object) => (
                    <tr key={object.id}>
                      <td>
                        <ObjectLink of={object} at={then.seq} />
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
