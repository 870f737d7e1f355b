// One object over all its incarnations: its lives, its entries, what it was at a moment, and who set each field.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { ObjectPage as Answer } from "./api.ts";
import { drawAxis, drawLanes, palette, size, sprites } from "./draw.ts";
import { useAnswer } from "./entry.tsx";
import { AFTER, BEFORE, gapModel, gapsOf, layOut, model, ROW } from "./layout.ts";
import { Command, EntryTable, Problem, Text, Time, useWidth, Yaml } from "./parts.tsx";
import { data, dark, end, followObject, go, hidden, linkTo, loadOverview, now, oldest, overview, upToNow, view } from "./store.ts";
import { objectName, whoWords } from "./text.ts";
import { parse, resolve, span } from "./time.ts";
import { splitId } from "./url.ts";

export function ObjectPage(): JSX.Element {
  const { object, at } = view.value;
  // Where the log is when it is asked: what comes after that is followed.
  const asked = useRef<string | null>(null);
  const { answer, problem, stale, busy, again } = useAnswer<Answer>(`${object} ${at}`, (signal) => {
    asked.current = overview.peek()?.cursor ?? null;
    return data.object(splitId(object), at, signal);
  });
  const newer = useNewer(answer, asked.current, again);
  const tab = useSignal<"history" | "object" | "blame">("history");
  const moment = useSignal(at);
  useEffect(() => {
    moment.value = at;
  }, [at]);
  // What is known of another object says nothing of this one.
  if (!answer || (problem && answer.lane.id !== object)) {
    return (
      <section class="list" tabIndex={0} aria-label="Object" aria-busy={busy}>
        {problem ? <Problem of={problem} retry={again} /> : <p class="muted pad">Reading its history</p>}
      </section>
    );
  }
  const { lane } = answer;
  const tabs = [["history", "History"], ["object", answer.at === null ? "The object" : `The object at ${answer.at}`], ["blame", "Blame"]] as const;
  return (
    <section class={`list object-page${stale ? " stale" : ""}`} tabIndex={0} aria-label="Object" aria-busy={busy}>
      {problem && <Problem of={problem} retry={again} />}
      <header class="object-head">
        <h2>
          <Text of={objectName(lane)} max={200} />
          {lane.namespace !== "" && (
            <span class="muted">
              {" in "}
              <Text of={lane.namespace} max={100} />
            </span>
          )}
        </h2>
        <p class="muted">
          <Text of={lane.resource} max={120} />
          {lane.owner !== null && (
            <>
              {" · owned by "}
              <a href={linkTo({ object: lane.owner, at: "", entry: null, against: null })}>
                <Text of={lane.owner} max={160} />
              </a>
            </>
          )}
          {" · "}
          <a href={linkTo({ page: "timeline", ...(data.embedded ? {} : { filters: { ...view.value.filters, what: [`${lane.resource}/${lane.name}`], namespace: lane.namespace ? [lane.namespace] : [] } }), entry: null, against: null })}>
            on the timeline
          </a>
        </p>
        <Lives answer={answer} />
        <table class="grid lives">
          <caption class="sr">Its incarnations</caption>
          <thead>
            <tr>
              <th scope="col">uid</th>
              <th scope="col">From</th>
              <th scope="col">Until</th>
              <th scope="col">Age</th>
            </tr>
          </thead>
          <tbody>
            {lane.bars.map((bar) => (
              <tr key={bar.uid}>
                <td class="num">
                  <Text of={bar.uid} max={60} />
                </td>
                <td>
                  {bar.from === null ? "before the log" : <Time at={bar.from} />} <span class="evidence">{bar.from_how === "watched" ? "" : bar.from_how === "listed" ? "listed: it was there before" : bar.from_how}</span>
                </td>
                <td>{bar.to === null ? "there still" : <Time at={bar.to} />} {bar.to !== null && bar.to_how !== "watched" && <span class="evidence">{bar.to_how}</span>}</td>
                <td class="num">{bar.from === null ? "" : span((bar.to === null ? now.value : parse(bar.to)) - parse(bar.from))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </header>
      {newer && (
        <button type="button" class="fresh" onClick={again}>
          There is a newer entry of this object: read again
        </button>
      )}
      <div class="tabs">
        <div role="tablist" aria-label="Parts of this page">
          {tabs.map(([key, name]) => (
            <button
              key={key}
              type="button"
              role="tab"
              id={`tab-${key}`}
              aria-selected={tab.value === key}
              aria-controls="tab-panel"
              tabIndex={tab.value === key ? 0 : -1}
              onClick={() => (tab.value = key)}
              onKeyDown={(event) => {
                const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
                if (by === 0) return;
                const next = tabs[(tabs.findIndex(([one]) => one === tab.value) + by + tabs.length) % tabs.length];
                if (next) {
                  tab.value = next[0];
                  document.getElementById(`tab-${next[0]}`)?.focus();
                }
              }}
            >
              {name}
            </button>
          ))}
        </div>
        {!data.embedded && <form
          class="at-form"
          onSubmit={(event) => {
            event.preventDefault();
            go({ at: resolve(moment.value, now.peek(), view.peek().zone) });
            tab.value = "object";
          }}
        >
          <label>
            at <input value={moment.value} placeholder="now, 2h, a time or an entry" spellcheck={false} onInput={(event) => (moment.value = event.currentTarget.value)} />
          </label>
          <button type="submit">Show</button>
        </form>}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab.value}`}>
        {tab.value === "history" && (
          <>
            <EntryTable entries={answer.entries} caption="Entries of the object, newest first" withObject={false} />
            {answer.more && <p class="muted pad">It has more entries: on the timeline and in the log you reach them.</p>}
          </>
        )}
        {tab.value === "object" &&
          (answer.yaml === null ? (
            <p class="muted pad">It was not there at that moment, or the log does not know.</p>
          ) : (
            <>
              <Yaml text={answer.yaml} isCut={answer.yaml_cut} label="The object as YAML" />
              {answer.command !== null && <Command text={answer.command} />}
            </>
          ))}
        {tab.value === "blame" && <BlameTable answer={answer} />}
      </div>
    </section>
  );
}

/** Whether the object has an entry that came after the answer. */
function useNewer(answer: Answer | null, asked: string | null, again: () => void): boolean {
  const heard = useSignal(0);
  const newest = answer?.entries[0]?.seq ?? 0;
  const epoch = overview.value?.epoch;
  useEffect(() => {
    heard.value = 0;
    if (!answer || epoch === undefined || hidden.value) return;
    const follower = followObject(answer.lane.id, asked ?? `${epoch}:${newest}`, {
      entry: (entry) => entry.id === answer.lane.id && (heard.value = entry.seq),
      // With the place of the log as it is then: without it this would begin again at once.
      reload: () => void loadOverview().then(again),
      link: () => {},
    });
    return () => follower?.stop();
  }, [answer, epoch, hidden.value]);
  return heard.value > newest;
}

function BlameTable({ answer }: { answer: Answer }): JSX.Element {
  if (answer.blame.length === 0) {
    return <p class="muted pad">No field of it is known to have been set by anybody.</p>;
  }
  return (
    <div class="scroll-x">
      <table class="grid">
        <caption class="sr">Each field, with who set it last</caption>
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Value</th>
            <th scope="col">Manager</th>
            <th scope="col" class="right">Entry</th>
            <th scope="col">Set</th>
          </tr>
        </thead>
        <tbody>
          {answer.blame.map((row, index) => (
            <tr key={index}>
              <td class="mono">
                <Text of={row.path} max={120} />
              </td>
              <td class="mono wide">
                <Text of={row.value} max={120} />
              </td>
              <td>
                <Text of={whoWords({ ...row, managers: row.manager === "" ? [] : [row.manager] })} max={80} /> <span class="muted">{row.operation}</span>
              </td>
              <td class="num right">
                {row.seq !== null && (
                  <button type="button" class="link" onClick={() => go({ entry: row.seq, against: null })}>
                    {row.seq}
                  </button>
                )}
              </td>
              <td>
                {row.time === null ? <span class="muted">not known</span> : <Time at={row.time} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {answer.blame_cut && <p class="muted pad">It has more fields: decklog blame prints them all.</p>}
    </div>
  );
}

/** Its lane over the whole log. */
function Lives({ answer }: { answer: Answer }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useRef<HTMLCanvasElement>(null);
  const width = useWidth(box);
  const isDark = dark.value;
  const { zone, entry, against } = view.value;
  const holes = useMemo(() => upToNow(answer.unwatched.map(gapModel)), [answer, overview.value]);
  // A log without a daemon ends with its last entry, and not years later.
  const [to, first] = [Math.floor(end.value / 1000) * 1000 + 1000, oldest.value];
  useEffect(() => {
    if (!canvas.current || !axis.current || width.value === 0) return;
    const sheet = sprites(palette());
    const lane = { ...answer.lane, depth: 0 };
    const from = Math.min(first, to - 1000);
    const scale = { from: from - (to - from) * 0.02, to: to + (to - from) * 0.02, width: width.value };
    drawAxis(size(axis.current, width.value, 20), sheet, scale, 20, zone, gapsOf(lane, holes));
    drawLanes(
      size(canvas.current, width.value, ROW), sheet,
      {
        rows: layOut([lane], new Set()), lanes: [model(lane)], gaps: holes, scale, now: to, oldest: first, covers: { from: BEFORE, to: AFTER }, entry,
        against, cursor: null, hover: null, zone,
      },
      0, ROW,
    );
  }, [answer, width.value, isDark, zone, entry, against, holes, to, first]);
  return (
    <div class="lives-plot" ref={box}>
      <canvas ref={axis} aria-hidden="true" />
      <canvas ref={canvas} aria-hidden="true" />
    </div>
  );
}
