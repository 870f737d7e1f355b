// What is asked for: the range, and the filters that `tail` takes, with the errors that it prints.

import { computed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { glyph, palette } from "./draw.ts";
import type { Asked } from "./api.ts";
import { AREAS, type Look } from "./layout.ts";
import { Text } from "./parts.tsx";
import { asked, dark, data, go, histogramFailure, lanesFailure, link, loaded, now, overview, range, view } from "./store.ts";
import { plain, short } from "./text.ts";
import { brief, duration, full, resolve, span, zoneName } from "./time.ts";
import { ALL, frozen, isLive, NO_FILTERS, TYPES, type Filters } from "./url.ts";

export function setFilters(change: Partial<Filters>): void {
  go({ filters: { ...view.peek().filters, ...change } });
}

/** Errors about these stand below the fields. */
export const FIELDS = ["what", "namespace", "by", "where", "type", "area"];

function problemOf(key: string): string | null {
  const found = [lanesFailure.value, histogramFailure.value].find((problem) => problem?.key === key);
  return found?.message ?? null;
}

/** A list of values, each with a button that takes it away, and a field for the next. */
function Chips({ label, id, values, known, placeholder, onChange }: {
  label: string; id: string; values: readonly string[]; known: readonly string[]; placeholder: string; onChange: (values: string[]) => void;
}): JSX.Element {
  const text = useSignal("");
  const problem = problemOf(id);
  const add = (): void => {
    const wanted = text.value.trim();
    if (wanted !== "" && !values.includes(wanted)) onChange([...values, wanted]);
    text.value = "";
  };
  return (
    <div class={`field chips field-${id}${problem ? " wrong" : ""}`}>
      <label for={`filter-${id}`}>{label}</label>
      {values.map((value) => (
        <span key={value} class="chip">
          <Text of={value} max={60} fixed />
          <button type="button" aria-label={plain(`Take ${value} away`)} onClick={() => onChange(values.filter((one) => one !== value))}>
            ×
          </button>
        </span>
      ))}
      <input
        id={`filter-${id}`}
        list={`known-${id}`}
        value={text.value}
        placeholder={values.length === 0 ? placeholder : ""}
        autocomplete="off"
        spellcheck={false}
        aria-invalid={problem !== null}
        aria-describedby={problem ? `wrong-${id}` : undefined}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onChange={add}
        onKeyDown={(event) => {
          if (event.key === "Enter") add();
          if (event.key === "Backspace" && text.value === "" && values.length > 0) onChange(values.slice(0, -1));
        }}
      />
      <datalist id={`known-${id}`}>
        {known.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </div>
  );
}

function Where(): JSX.Element {
  const { filters } = view.value;
  const text = useSignal(filters.where);
  const field = useRef<HTMLInputElement>(null);
  // Back and links change the filter under the field.
  useEffect(() => {
    text.value = filters.where;
  }, [filters.where]);
  const problem = problemOf("where");
  return (
    <div class={`field where${problem ? " wrong" : ""}`}>
      <label for="filter-where">Where</label>
      <input
        id="filter-where"
        ref={field}
        value={text.value}
        placeholder={'CEL, such as "spec" in change.areas'}
        autocomplete="off"
        spellcheck={false}
        aria-invalid={problem !== null}
        aria-describedby={problem ? "wrong-where" : undefined}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onChange={() => setFilters({ where: text.value.trim() })}
        onKeyDown={(event) => {
          if (event.key === "Enter") setFilters({ where: text.value.trim() });
        }}
      />
    </div>
  );
}

/** What a file is about, which nobody can change in it. */
function About({ of }: { of: Asked | undefined }): JSX.Element {
  if (!of) return <></>;
  const lists: [string, string[]][] = [["Objects", of.objects], ["Namespace", of.namespaces], ["Type", of.types], ["Area", of.areas], ["By", of.by], ["Where", of.where === null ? [] : [of.where]]];
  const said = lists.filter(([, values]) => values.length > 0);
  if (said.length === 0) return <></>;
  return (
    <section class="filters about" aria-label="What this file is about">
      {said.map(([label, values]) => (
        <span key={label} class="field">
          <span class="muted">{label}</span>
          {values.map((value) => (
            <span key={value} class="chip">
              <Text of={value} max={60} fixed />
            </span>
          ))}
        </span>
      ))}
    </section>
  );
}

/** The names on the marks of the window. */
const writers = computed(() => {
  const names = new Set<string>();
  for (const model of loaded.value?.models ?? []) for (const mark of model.lane.marks) for (const name of mark.managers) names.add(name);
  return [...names].sort();
});

export function FilterBar({ only }: { only?: "state" }): JSX.Element {
  const { filters } = view.value;
  const known = overview.value;
  const open = useSignal(false);
  const used = filters.what.length + filters.namespace.length + filters.type.length + filters.area.length + filters.by.length + (filters.where ? 1 : 0);
  // What a file is about was chosen when it was made.
  if (data.embedded && used === 0) return <About of={known?.asked} />;
  return (
    <section class={`filters${open.value ? " open" : ""}`} aria-label="Filters">
      <button type="button" class="filters-toggle" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        Filters{used > 0 ? ` (${used})` : ""}
      </button>
      <div class="filters-body">
        <Chips
          label="Objects"
          id="what"
          values={filters.what}
          known={(known?.kinds ?? []).map((kind) => short(kind.kind))}
          placeholder="deploy/web, pods/web-*"
          onChange={(what) => setFilters({ what })}
        />
        <Chips
          label="Namespace"
          id="namespace"
          values={filters.namespace}
          known={known?.namespaces ?? []}
          placeholder="all"
          onChange={(namespace) => setFilters({ namespace })}
        />
        {only !== "state" && <Chips label="By" id="by" values={filters.by} known={writers.value} placeholder="kubectl*, flux" onChange={(by) => setFilters({ by })} />}
        {only !== "state" && <Where />}
        {used > 0 && (
          <button type="button" class="quietly" onClick={() => go({ filters: { ...NO_FILTERS, quiet: filters.quiet } })}>
            Clear
          </button>
        )}
        {FIELDS.map((key) => {
          const problem = problemOf(key);
          // Below all fields, so that none of them moves.
          return problem === null ? null : (
            <p key={key} class="wrong-text" id={`wrong-${key}`} role="alert">
              <Text of={problem} max={2000} lines />
            </p>
          );
        })}
      </div>
    </section>
  );
}

// ---- the legend, which filters -----------------------------------------------------------------------------------------

function Swatch({ look }: { look: Look }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = dark.value;
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context) return;
    const ratio = devicePixelRatio;
    element.width = element.height = Math.ceil(14 * ratio);
    context.scale(ratio, ratio);
    const colours = palette();
    glyph(context, look, colours.looks[look], colours.ground, 7, 7);
  }, [isDark, look]);
  return <canvas ref={canvas} class="swatch" aria-hidden="true" />;
}

export function Legend(): JSX.Element {
  const { filters } = view.value;
  const toggle = (list: readonly string[], value: string): string[] => (list.includes(value) ? list.filter((one) => one !== value) : [...list, value]);
  const typeLook: Partial<Record<string, Look>> = { ADDED: "ADDED", DELETED: "DELETED" };
  return (
    <div class="legend" role="group" aria-label="Legend: choosing one shows only what has it">
      {TYPES.map((type) => (
        <button key={type} type="button" disabled={data.embedded} aria-pressed={filters.type.includes(type)} onClick={() => setFilters({ type: toggle(filters.type, type) })}>
          {typeLook[type] ? <Swatch look={typeLook[type]} /> : type === "GAP" ? <span class="swatch-gap" /> : null}
          {type === "GAP" ? "GAP: not recorded" : type}
        </button>
      ))}
      <span class="divider" />
      {AREAS.map((area) => (
        <button key={area} type="button" disabled={data.embedded} aria-pressed={filters.area.includes(area)} onClick={() => setFilters({ area: toggle(filters.area, area) })}>
          <Swatch look={area} />
          {area}
        </button>
      ))}
      <span class="key">
        <Swatch look="other" />
        other
      </span>
      <span class="divider" />
      <button type="button" disabled={data.embedded} aria-pressed={filters.quiet} title="Writes that change nothing that matters" onClick={() => setFilters({ quiet: !filters.quiet })}>
        <Swatch look="QUIET" />
        quiet
      </button>
      <button type="button" aria-pressed={view.value.changed} title="Hide objects that did not change in the window (h)" onClick={() => go({ changed: !view.value.changed })}>
        changed only
      </button>
      <span class="divider" />
      <span class="key"><span class="swatch-bar open" />there before</span>
      <span class="key"><span class="swatch-bar hollow" />inferred</span>
      <span class="key"><span class="swatch-line" />watched, quiet</span>
    </div>
  );
}

// ---- the range ---------------------------------------------------------------------------------------------------------

const QUICK = ["15m", "1h", "2h", "6h", "24h", "7d"];

export function RangeBar(): JSX.Element {
  const known = view.value;
  const live = isLive(known);
  const window = range.value;
  const { zone } = known;
  const editing = useSignal(false);
  const since = useSignal("");
  const until = useSignal("");
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (editing.value) first.current?.focus();
  }, [editing.value]);
  const problem = typeof asked.value === "string" ? asked.value : (problemOf("since") ?? problemOf("until"));
  const canFollow = overview.value?.mode === "daemon" && known.page !== "churn";
  const relative = !Number.isNaN(duration(known.since)) && live;
  const part = overview.value?.asked;
  // A file of a part of the log is no whole log.
  const isPart = part !== undefined && (part.since !== null || part.until !== null);
  const title = relative ? `Last ${resolve(known.since, window.to, zone)}` : known.since === ALL && live && !isPart ? "Whole log" : `${full(window.from, zone)} for ${span(window.to - window.from)}`;
  const goLive = (): void => {
    const size = window.to - window.from;
    const back = QUICK.find((quick) => duration(quick) >= size * 0.99) ?? "7d";
    go({ since: relative || known.since === ALL ? known.since : back, until: "" });
  };
  return (
    <section class="range" aria-label="Range">
      <button
        type="button"
        class="range-title num"
        aria-expanded={editing.value}
        title={`${full(window.from, zone, true)} to ${full(window.to, zone, true)} ${zoneName(zone, window.to)}`}
        onClick={() => {
          const exact = frozen(window);
          since.value = known.since === "" ? exact.since : known.since;
          until.value = known.until;
          editing.value = !editing.value;
        }}
      >
        {title}
      </button>
      <div class="quick" role="group" aria-label="Ranges that end now">
        {QUICK.map((quick) => (
          <button key={quick} type="button" aria-pressed={relative && known.since === quick} onClick={() => go({ since: quick, until: "" })}>
            {quick}
          </button>
        ))}
        <button type="button" aria-pressed={known.since === ALL && live} onClick={() => go({ since: ALL, until: "" })}>
          {data.embedded ? "whole file" : "all"}
        </button>
      </div>
      {canFollow && (
        <button type="button" class={`live live-${link.value}`} aria-pressed={live} title={link.value === "turn" ? "Other windows have the streams: this one asks each 15 seconds" : "Follow the log (l)"} onClick={() => (live ? go(frozen(window)) : goLive())}>
          <span class="dot" />
          {live ? LINK[link.value] : "Stopped"}
        </button>
      )}
      {editing.value && (
        <form
          class="range-form"
          onSubmit={(event) => {
            event.preventDefault();
            go({ since: resolve(since.value, now.peek(), zone), until: resolve(until.value, now.peek(), zone) });
            editing.value = false;
          }}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.stopPropagation();
            editing.value = false;
          }}
        >
          <label>
            Since
            <input ref={first} value={since.value} spellcheck={false} placeholder="2h, 10:30, yesterday, a time, or all" onInput={(event) => (since.value = event.currentTarget.value)} />
          </label>
          <label>
            Until
            <input value={until.value} spellcheck={false} placeholder="now" onInput={(event) => (until.value = event.currentTarget.value)} />
          </label>
          <p class="muted">
            A duration such as 2h is counted back from now. 10:30, yesterday and 2026-11-20 10:30 are in {zoneName(zone, window.to)}; times of any zone are written as{" "}
            {brief(window.from).replace(/\.\d+/, "")}.
          </p>
          <button type="submit">Show</button>
        </form>
      )}
      {problem && (
        <p class="wrong-text" role="alert">
          <Text of={problem} max={600} />
        </p>
      )}
    </section>
  );
}

const LINK: Record<string, string> = { off: "Waiting", connecting: "Connecting", live: "Live", lost: "Connecting again", turn: "Each 15 s" };
