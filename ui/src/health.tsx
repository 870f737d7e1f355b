// Whether all is well: what `decklog status` says.

import type { JSX } from "preact";
import type { Overview } from "./api.ts";
import { Empty, Text, Time } from "./parts.tsx";
import { go, now, overview, overviewFailure } from "./store.ts";
import { bytes, count, counted } from "./text.ts";
import { parse, span } from "./time.ts";

export type Worst = "good" | "attention" | "bad";

/** One word for the light in the head: bad where somebody is needed, attention where something is not as it should be. */
export function worst(known: Overview | null): Worst {
  if (!known) return "attention";
  if (known.alarms.length > 0) return "bad";
  const off = known.sources.some((source) => source.state !== "watching") || known.sinks.some((sink) => !["running", "delivering", "idle"].includes(sink.state));
  return off || !known.daemon.running ? "attention" : "good";
}

export function Health(): JSX.Element {
  const known = overview.value;
  if (!known) return <section class="list">{overviewFailure.value ? null : <p class="muted pad">Asking</p>}</section>;
  return (
    <section class="list health" aria-label="Health" tabIndex={0}>
      <dl class="facts">
        <dt>Log</dt>
        <dd>
          {known.oldest && known.head ? (
            <>
              {count(known.oldest.seq)} to {count(known.head.seq)}, from <Time at={known.oldest.time} /> to <Time at={known.head.time} />
            </>
          ) : (
            "empty"
          )}
          {known.size > 0 && `, ${bytes(known.size)}`}
        </dd>
        <dt>Epoch</dt>
        <dd class="num">
          <Text of={known.epoch} max={80} />
        </dd>
        <dt>Cluster</dt>
        <dd>
          <Text of={known.cluster.name} max={80} /> <span class="muted num">{known.cluster.uid}</span>
        </dd>
        <dt>Read from</dt>
        <dd>{{ daemon: "the running daemon", journal: "the journal", file: "this file, as it was written" }[known.mode]}</dd>
        {!known.daemon.running && known.daemon.since !== null && (
          <>
            <dt>Daemon</dt>
            <dd class="evidence">
              not running: no daemon has watched since <Time at={known.daemon.since} />, and nothing newer is known
            </dd>
          </>
        )}
      </dl>
      <h2>Alarms</h2>
      {known.alarms.length === 0 ? (
        <p class="muted pad">None.</p>
      ) : (
        <ul class="alarms">
          {known.alarms.map((alarm, index) => (
            <li key={index}>
              <strong>
                <Text of={alarm.name} max={80} />
              </strong>{" "}
              <Text of={alarm.text} max={500} />
              {alarm.since && (
                <span class="muted">
                  {" since "}
                  <Time at={alarm.since} />
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
      <h2>Sources</h2>
      {known.sources.length === 0 ? (
        <Empty title="Nothing is watched" />
      ) : (
        <div class="scroll-x">
          <table class="grid">
            <thead>
              <tr>
                <th scope="col">Source</th>
                <th scope="col">State</th>
                <th scope="col" class="right">Objects</th>
                <th scope="col" class="right">Gaps</th>
                <th scope="col">Good at</th>
                <th scope="col">Detail</th>
              </tr>
            </thead>
            <tbody>
              {known.sources.map((source) => (
                <tr key={source.name}>
                  <td>
                    <Text of={source.name} max={90} />
                    {source.namespace !== "" && <span class="muted"> <Text of={source.namespace} max={60} /></span>}
                  </td>
                  <td>
                    <span class={`light light-${known.daemon.running && source.state === "watching" ? "good" : "attention"}`} /> <Text of={source.says} max={60} />
                  </td>
                  <td class="num right">{count(source.objects)}</td>
                  <td class={`num right${source.gaps > 0 ? " evidence" : " muted"}`}>{count(source.gaps)}</td>
                  <td>
                    <Time at={source.good_at} />
                    {source.good_at && source.state !== "watching" && <span class="evidence"> {span(now.value - parse(source.good_at))} ago</span>}
                  </td>
                  <td class="muted wide">
                    <Text of={source.detail} max={200} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <h2>Gaps</h2>
      {known.gaps.length === 0 ? (
        <p class="muted pad">{!known.daemon.running || known.sources.some((source) => source.state !== "watching") ? "None so far. What is not watched at the moment may become one." : "None: no change is missing."}</p>
      ) : (
        <div class="scroll-x">
          <table class="grid">
            <thead>
              <tr>
                <th scope="col" class="right">Entry</th>
                <th scope="col">Known until</th>
                <th scope="col">Known again</th>
                <th scope="col">For</th>
                <th scope="col">Of</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              {known.gaps.map((gap) => (
                <tr key={gap.seq}>
                  <td class="num right">
                    <button type="button" class="link" onClick={() => go({ entry: gap.seq, against: null })}>
                      {gap.seq}
                    </button>
                  </td>
                  <td>{gap.since ? <Time at={gap.since} /> : <span class="muted">not known</span>}</td>
                  <td>
                    <Time at={gap.time} />
                  </td>
                  <td class="num">{gap.since ? span(parse(gap.time) - parse(gap.since)) : ""}</td>
                  <td>
                    <Text of={[gap.resource || "everything", gap.name, gap.namespace].filter(Boolean).join(" ")} max={90} />
                  </td>
                  <td>
                    <Text of={gap.why} max={60} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <h2>Sinks</h2>
      {known.sinks.length === 0 ? (
        <p class="muted pad">None: the journal is the log.</p>
      ) : (
        <div class="scroll-x">
          <table class="grid">
            <thead>
              <tr>
                <th scope="col">Sink</th>
                <th scope="col">Kind</th>
                <th scope="col">State</th>
                <th scope="col" class="right">Cursor</th>
                <th scope="col" class="right">Behind</th>
                <th scope="col">Delivered</th>
                <th scope="col">Detail</th>
              </tr>
            </thead>
            <tbody>
              {known.sinks.map((sink) => (
                <tr key={sink.name}>
                  <td>
                    <Text of={sink.name} max={90} />
                  </td>
                  <td>{sink.kind}</td>
                  <td>
                    <Text of={sink.says} max={60} />
                  </td>
                  <td class="num right">{count(sink.cursor)}</td>
                  <td class="num right">{sink.lag === 0 ? "0" : counted(sink.lag, "entry", "entries")}</td>
                  <td>
                    <Time at={sink.delivered_at} />
                  </td>
                  <td class="muted wide">
                    <Text of={sink.detail} max={200} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
