// One entry, or the difference of two: beside the lanes, where somebody chose a mark.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Actor, type Difference, type Entry, type Lanes, type Manager, type Summary } from "./api.ts";
import { Areas, Command, Diff, EntryList, ObjectLink, Problem, Text, Time, TypeWord, useLoad, Yaml } from "./parts.tsx";
import { inWords, toLanes } from "./lanes.tsx";
import { closeEntry, data, failure, go, linkTo, narrow, picking, range, said, senderOf, view, type Failure } from "./store.ts";
import { counted, plain, senderWords } from "./text.ts";
import { full, parse } from "./time.ts";
import { frozen } from "./url.ts";

export function Panel(): JSX.Element | null {
  const { entry, against } = view.value;
  const element = useRef<HTMLElement>(null);
  const covers = narrow.value && entry !== null;
  // What it covers lost the keyboard.
  useEffect(() => {
    if (covers) element.current?.focus();
  }, [covers]);
  if (entry === null) return null;
  return (
    <aside class="panel" id="panel" ref={element} aria-label={against === null ? `Entry ${entry}` : `Difference of entries ${entry} and ${against}`} tabIndex={-1}>
      {against === null ? <EntryPanel key="one" seq={entry} /> : <Compare key="two" one={entry} two={against} />}
    </aside>
  );
}

export interface Answered<T> {
  answer: T | null;
  problem: Failure | null;
  /** The answer is that of another key. */
  stale: boolean;
  busy: boolean;
  again: () => void;
}

/**
 * What was loaded for a key, and what went wrong. While the next loads, the last stays, so that nothing jumps; it stays, too,
 * where decklog does not answer.
 */
export function useAnswer<T>(key: string, ask: (signal: AbortSignal) => Promise<T>): Answered<T> {
  const state = useSignal<{ asked: string; of: string; answer: T | null; problem: Failure | null }>({ asked: "", of: "", answer: null, problem: null });
  const turn = useSignal(0);
  const asked = `${turn.value} ${key}`;
  useLoad(asked, async (signal) => {
    try {
      const answer = await ask(signal);
      if (!signal.aborted) state.value = { asked, of: key, answer, problem: null };
    } catch (error) {
      if (signal.aborted) return;
      const problem = failure(error);
      state.value = problem.outage ? { ...state.peek(), asked, problem } : { asked, of: "", answer: null, problem };
    }
  });
  const { of, answer, problem } = state.value;
  return { answer, problem, stale: of !== key, busy: state.value.asked !== asked, again: () => (turn.value += 1) };
}

function Close(): JSX.Element {
  return (
    <button type="button" class="close" aria-label="Close" title="Close (Esc)" onClick={() => (closeEntry(), toLanes())}>
      ×
    </button>
  );
}

/** An entry for the ear. */
function spoken(one: Summary): string {
  const what = one.type === "GAP" ? one.resource || "everything" : `${one.kind}/${one.name}`;
  return plain(inWords(one, ` of ${what}${one.namespace ? ` in ${one.namespace}` : ""}`), 400);
}

/** Who sent the request, under the programs that managedFields name. */
function Sender({ of }: { of: Actor }): JSX.Element {
  const addresses = of.addresses ?? [];
  const rest = [`${of.verb} ${of.subresource ?? ""}`.trim(), of.agent ?? "", addresses.length > 1 ? `through ${addresses.join(", ")}` : ""];
  return (
    <div class="sender">
      by <Text of={senderWords(of)} max={300} />
      <div class="muted">
        <Text of={rest.filter(Boolean).join(" · ")} max={300} />
      </div>
    </div>
  );
}

function EntryPanel({ seq }: { seq: number }): JSX.Element {
  const { answer, problem, stale, busy, again } = useAnswer<Entry>(String(seq), (signal) => data.entry(seq, signal));
  const top = useRef<HTMLDivElement>(null);
  useEffect(() => {
    top.current?.parentElement?.scrollTo(0, 0);
  }, [seq]);
  useEffect(() => {
    if (answer) said.value = `${spoken(answer.summary)}, opened`;
  }, [answer]);
  if (!answer) {
    return (
      <div ref={top} aria-busy={busy}>
        <header class="panel-head">
          <h2>Entry {seq}</h2>
          <Close />
        </header>
        {problem ? (
          <Problem of={problem} retry={again} />
        ) : (
          <p class="muted pad" aria-live="polite">
            Reading the entry
          </p>
        )}
      </div>
    );
  }
  const { summary } = answer;
  const managers = answer.entry?.change?.managers ?? answer.entry?.managers ?? summary.managers.map((manager): Manager => ({ manager }));
  const actor = senderOf(summary);
  const isGap = summary.type === "GAP";
  const at = parse(summary.time);
  return (
    <div ref={top} class={stale && !problem ? "stale" : ""} data-entry={summary.seq} aria-busy={busy}>
      <header class="panel-head">
        <h2>
          <TypeWord of={summary.type} /> {isGap ? <Text of={[summary.resource || "everything", summary.namespace].filter(Boolean).join(" ")} max={90} /> : <ObjectLink of={summary} at={summary.seq} />}
        </h2>
        <Close />
      </header>
      {problem && <Problem of={problem} retry={again} />}
      {problem && stale && (
        <p class="hint">
          Entry {seq} was not read. This is entry {summary.seq} still.
        </p>
      )}
      {/* While the next entry is read, what stands here is the last one's, and leads nowhere. It stays
          enabled, because a button that is not loses the focus. */}
      <nav class="panel-nav" aria-label="Entries of this object">
        <button type="button" disabled={answer.previous === null} aria-disabled={stale} onClick={() => !stale && go({ entry: answer.previous })} title="The entry of this object before (p)">
          ‹ Previous
        </button>
        <span class="num">entry {summary.seq}</span>
        <button type="button" disabled={answer.next === null} aria-disabled={stale} onClick={() => !stale && go({ entry: answer.next })} title="The next entry of this object (n)">
          Next ›
        </button>
        {!data.embedded && (
          <button type="button" class="pick" aria-pressed={picking.value} onClick={() => (picking.value = !picking.value)} title="Compare with another entry (c)">
            Compare
          </button>
        )}
        {!data.embedded && answer.previous !== null && (
          <button type="button" onClick={() => go({ against: answer.previous })} title="The whole difference of the two objects, with the status">
            With previous
          </button>
        )}
      </nav>
      {(view.value.page !== "timeline" || at < range.value.from || at > range.value.to) && (
        <p class="hint">
          <a href={linkTo({ page: "timeline", ...frozen({ from: at - 15 * 60_000, to: at + 15 * 60_000 }) })}>Show it on the timeline</a>
        </p>
      )}
      <Ways of={answer} />
      {picking.value && (
        <p class="hint" role="status">
          Choose the other mark. Esc ends this.
        </p>
      )}
      <dl class="facts">
        <dt>Journaled</dt>
        <dd>
          <Time at={summary.time} fraction />
        </dd>
        {summary.happened && (
          <>
            <dt>Happened</dt>
            <dd>
              <Time at={summary.happened} />
            </dd>
          </>
        )}
        {!isGap && (
          <>
            <dt>Known by</dt>
            <dd>
              {summary.evidence} <span class="muted">{EVIDENCE[summary.evidence] ?? ""}</span>
            </dd>
          </>
        )}
        {summary.areas.length > 0 && (
          <>
            <dt>Changed</dt>
            <dd>
              <Areas of={summary.areas} />
            </dd>
          </>
        )}
        {(managers.length > 0 || (actor && !answer.unnamed)) && (
          <>
            <dt>By</dt>
            <dd>
              {managers.map((manager, index) => (
                <div key={index}>
                  <Text of={manager.manager} max={120} />{" "}
                  <span class="muted">
                    <Text of={[manager.operation, manager.subresource].filter(Boolean).join(" ")} max={60} />
                    {manager.by === "owner" && " (it owns what changed)"}
                  </span>
                </div>
              ))}
              {actor && <Sender of={actor} />}
            </dd>
          </>
        )}
        {managers.length === 0 && answer.unnamed && (
          <>
            <dt>By</dt>
            <dd class={actor ? "" : "unnamed"}>
              <Text of={answer.unnamed} max={400} />
              {actor && <Sender of={actor} />}
            </dd>
          </>
        )}
        {answer.origin && (
          <>
            <dt>From</dt>
            <dd class="origin">
              {answer.origin.map((line, index) => (
                <div key={index}>
                  <Text of={line} max={400} />
                </div>
              ))}
            </dd>
          </>
        )}
        {summary.gap && (
          <>
            <dt>Why</dt>
            <dd>
              <Text of={summary.gap.why} /> <span class="muted">changes may be missing here</span>
            </dd>
            {summary.gap.since && (
              <>
                <dt>Known until</dt>
                <dd>
                  <Time at={summary.gap.since} />
                </dd>
              </>
            )}
            {(summary.gap.from || summary.gap.to) && (
              <>
                <dt>Versions</dt>
                <dd class="num">
                  <Text of={`${summary.gap.from ?? "?"} to ${summary.gap.to ?? "?"}`} />
                </dd>
              </>
            )}
          </>
        )}
      </dl>

      {!isGap && (
        <section>
          <h3>What changed</h3>
          {!answer.real && <p class="note">Nothing that matters: only what every write moves.</p>}
          {answer.diff.trim() === "" ? <p class="muted">{summary.type === "MODIFIED" ? "No field that is shown is different." : "There is nothing to compare it with."}</p> : <Diff text={answer.diff} cut={answer.diff_cut} />}
        </section>
      )}
      {answer.yaml !== "" && (
        <details>
          <summary>The object as it was then</summary>
          <Yaml text={answer.yaml} isCut={answer.yaml_cut} label="The object as it was then" />
        </details>
      )}
      {answer.neighbours && answer.neighbours.length > 0 && (
        <section>
          <h3>Around it</h3>
          <EntryList entries={answer.neighbours} label="Entries of other objects, before and after" />
        </section>
      )}
    </div>
  );
}

/** The ways back, with what undoes the change first. */
function Ways({ of }: { of: Entry }): JSX.Element | null {
  const { undo, command, summary } = of;
  const back = command === undo ? null : command;
  if (undo === undefined && back === null) return null;
  return (
    <section class="ways">
      {undo !== undefined && (
        <>
          <h3>{summary.type === "DELETED" ? "Undo this change: bring the object back" : "Undo this change"}</h3>
          <Command text={undo} />
        </>
      )}
      {back !== null && (
        <>
          <h3 class="second">Go back to this version</h3>
          <Command text={back} />
        </>
      )}
    </section>
  );
}

const EVIDENCE: Record<string, string> = {
  watched: "the API server said so",
  recovered: "read from the API server's own history",
  listed: "a first list found it: it was there before",
  inferred: "the difference of two states, before and after a gap",
};

function Compare({ one, two }: { one: number; two: number }): JSX.Element {
  const [from, to] = one < two ? [one, two] : [two, one];
  const { answer, problem, stale, busy, again } = useAnswer<Difference>(`${from} ${to}`, (signal) => data.diff(from, to, signal));
  return (
    <div class={stale && answer ? "stale" : ""} data-diff={answer && !stale ? `${from} ${to}` : undefined} aria-busy={busy}>
      <header class="panel-head">
        <h2>
          Entry {from} to {to}
        </h2>
        <Close />
      </header>
      <nav class="panel-nav" aria-label="Comparison">
        <button type="button" onClick={() => go({ entry: from, against: null })}>
          Only {from}
        </button>
        <button type="button" onClick={() => go({ entry: to, against: null })}>
          Only {to}
        </button>
      </nav>
      {problem && <Problem of={problem} retry={again} />}
      {!answer && !problem && (
        <p class="muted pad" aria-live="polite">
          Comparing
        </p>
      )}
      {answer && (
        <>
          <EntryList entries={[answer.from, answer.to]} label="The two entries" />
          {!answer.same_object && <p class="note">These are two objects.</p>}
          <section>
            <h3>What is different</h3>
            {answer.diff.trim() === "" ? <p class="muted">Nothing that matters: the two are the same.</p> : <Diff text={answer.diff} cut={answer.diff_cut} whole="decklog diff" />}
          </section>
          {answer.command !== null && (
            <section>
              <h3>The same in a terminal</h3>
              <Command text={answer.command} />
            </section>
          )}
        </>
      )}
    </div>
  );
}

export function truncatedText(cut: NonNullable<Lanes["truncated"]>): string {
  const parts: string[] = [];
  if (cut.lanes > 0) parts.push(counted(cut.lanes, "object"));
  if (cut.marks > 0) parts.push(counted(cut.marks, "change"));
  const said = parts.length > 0 ? [`${parts.join(" and ")} more than fit.`] : [];
  if (cut.unwatched) said.push(`${counted(cut.unwatched, "stretch", "stretches")} that are not recorded are not hatched.`);
  if (cut.causes_before) {
    said.push(`Causes before ${full(parse(cut.causes_before), view.peek().zone)} were not looked for: those objects stand below.`);
  }
  if (cut.before) said.push(`Nothing before ${full(parse(cut.before), view.peek().zone)} was read.`);
  return `${said.join(" ")} Narrow the window or the filters to see all.`;
}
