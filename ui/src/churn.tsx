// Who writes too often, and which managers fight: `decklog churn`.

import type { JSX } from "preact";
import { LISTED, type Churn as Answer } from "./api.ts";
import { useAnswer } from "./entry.tsx";
import { RangeBar } from "./filters.tsx";
import { Empty, ObjectLink, Problem, Text, Time } from "./parts.tsx";
import { data, go, overview, view } from "./store.ts";
import { count, rewriteWords } from "./text.ts";
import { ALL } from "./url.ts";

export function Churn(): JSX.Element {
  const { until } = view.value;
  // Asked without a range, decklog counts the last hour.
  const first = overview.value?.oldest?.time ?? "";
  const since = view.value.since === ALL ? first : view.value.since;
  const { answer, problem, stale, busy, again } = useAnswer<Answer>(JSON.stringify([since, until]), (signal) => data.churn({ since, until }, signal));
  return (
    <section class={`list${stale && answer ? " stale" : ""}`} aria-label="Churn" aria-busy={busy} tabIndex={0}>
      <div class="controls">
        <RangeBar />
      </div>
      {problem && <Problem of={problem} retry={again} />}
      {!answer && !problem && <p class="muted pad">Counting</p>}
      {answer && (
        <>
          <p class="pad muted">
            <Time at={answer.since} /> to <Time at={answer.until} />
          </p>
          {answer.truncated && (
            <p class="pad cut">
              Only a part of this window was counted: there was no time for its end, or no room for more writers. {data.embedded ? "" : "Choose a shorter one, or run "}decklog churn{data.embedded && " counts all of it"}.
            </p>
          )}
          {Math.max(answer.writers.length, answer.fights.length) >= LISTED && <p class="pad muted">A list has {LISTED} rows at most, those that weigh most. There may be more: a shorter window has fewer.</p>}
          <h2>Fought over</h2>
          {answer.fights.length === 0 ? (
            <p class="muted pad">No two managers keep changing a field back and forth.</p>
          ) : (
            <div class="scroll-x">
              <table class="grid">
                <thead>
                  <tr>
                    <th scope="col" class="right">Writes</th>
                    <th scope="col">Object</th>
                    <th scope="col">Field</th>
                    <th scope="col">Managers</th>
                    <th scope="col" class="right">Last</th>
                  </tr>
                </thead>
                <tbody>
                  {answer.fights.map((fight, index) => (
                    <tr key={index}>
                      <td class="num right">{count(fight.writes)}</td>
                      <td>
                        <ObjectLink of={fight} />
                      </td>
                      <td class="mono">
                        <Text of={fight.path} max={120} />
                      </td>
                      <td>
                        {fight.managers.map((manager, at) => (
                          <span key={manager}>
                            {at > 0 && <span class="muted"> against </span>}
                            <Text of={manager} max={80} />
                          </span>
                        ))}
                      </td>
                      <td class="num right">
                        <button type="button" class="link" onClick={() => go({ entry: fight.last, against: null })}>
                          {fight.last}
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {answer.rewrites?.map((rewrite) => (
            <p class="pad muted" key={rewrite.seq}>
              Nobody is to blame for the <Text of={`${rewriteWords(rewrite)}: ${[rewrite.resource, rewrite.namespace].filter(Boolean).join(" ")}`} max={200} />, <Time at={rewrite.since} /> to <Time at={rewrite.until} />.
            </p>
          ))}
          <h2>Written most</h2>
          {answer.writers.length === 0 ? (
            <Empty title="Nobody wrote in this window" />
          ) : (
            <div class="scroll-x">
              <table class="grid">
                <thead>
                  <tr>
                    <th scope="col" class="right">Writes</th>
                    <th scope="col" class="right">No-op</th>
                    <th scope="col">Object</th>
                    <th scope="col">Manager</th>
                    <th scope="col">Kind of write</th>
                  </tr>
                </thead>
                <tbody>
                  {answer.writers.map((writer, index) => (
                    <tr key={index}>
                      <td class="num right">{count(writer.writes)}</td>
                      <td class={`num right${writer.useless > 0 ? "" : " muted"}`}>
                        {writer.useless > 0 ? `${count(writer.useless)} (${Math.round((100 * writer.useless) / Math.max(1, writer.writes))}%)` : "none"}
                      </td>
                      <td>
                        <ObjectLink of={writer} />
                      </td>
                      <td>
                        <Text of={writer.manager} max={80} />
                      </td>
                      <td>
                        <Text of={writer.class} max={80} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          <p class="muted pad">Writers are those that managedFields name: a hint, not proof.</p>
        </>
      )}
    </section>
  );
}
