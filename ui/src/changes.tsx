// Between two moments: what became of each object.

import type { JSX } from "preact";
import type { Became, Changes } from "./api.ts";
import { Empty, ObjectLink, Text, Time } from "./parts.tsx";
import { data, go } from "./store.ts";
import { count, counted } from "./text.ts";

const WORD: Record<Became["became"], string> = { added: "added", removed: "removed", changed: "changed", replaced: "replaced", first_seen: "first seen" };

const EXPLAINED: Record<Became["became"], string> = {
  added: "It was not there, and is",
  removed: "It was there, and is not",
  changed: "It is another version",
  replaced: "It is another object of the same name",
  first_seen: "It is there, and nothing is known of it at the first moment",
};

function Row({ of }: { of: Became }): JSX.Element {
  const compared = !data.embedded && of.before !== null && (of.became === "changed" || of.became === "replaced");
  return (
    <tr>
      <td class={`became-${of.became}`} title={EXPLAINED[of.became]}>
        {WORD[of.became]}
      </td>
      <td>
        <ObjectLink of={of} {...(of.seq === null ? {} : { at: of.seq })} />
      </td>
      <td>
        <Text of={of.areas.filter((area) => area !== "managedFields").join(", ")} max={80} />
      </td>
      <td class="num right">{count(of.entries)}</td>
      <td>
        <Time at={of.time} />
      </td>
      <td class={of.how === "watched" ? "muted" : "evidence"}>{of.how}</td>
      <td>
        {of.seq !== null && (
          <button type="button" class="link" onClick={() => go({ entry: of.seq, against: compared ? of.before : null })}>
            {compared ? "Difference" : `Entry ${of.seq}`}
          </button>
        )}
      </td>
    </tr>
  );
}

export function ChangesList({ answer }: { answer: Changes }): JSX.Element {
  const words = (Object.keys(WORD) as Became["became"][]).flatMap((word) => {
    const many = answer.objects.filter((object) => object.became === word).length;
    return many > 0 ? [`${count(many)} ${WORD[word]}`] : [];
  });
  if (answer.came_and_went > 0) words.push(`${count(answer.came_and_went)} came and went`);
  return (
    <div data-changes={`${answer.from.seq} ${answer.to.seq}`}>
      <p class="pad">
        <Time at={answer.from.at} />, entry <span class="num">{answer.from.seq}</span>, to <Time at={answer.to.at} />, entry <span class="num">{answer.to.seq}</span>:{" "}
        {words.length > 0 ? words.join(", ") : "no difference"}
        {answer.gaps > 0 && <span class="evidence">; what else happened in {counted(answer.gaps, "gap")} is unknown</span>}
        {answer.truncated > 0 && <strong class="cut"> {counted(answer.truncated, "object")} more were not looked at: narrow the filters or the time.</strong>}
      </p>
      {answer.objects.length === 0 ? (
        <Empty title="Nothing is different, as far as the log knows" />
      ) : (
        <div class="scroll-x">
          <table class="grid">
            <caption class="sr">What became of objects between the two moments</caption>
            <thead>
              <tr>
                <th scope="col">Became</th>
                <th scope="col">Object</th>
                <th scope="col">Areas</th>
                <th scope="col" class="right">
                  Entries
                </th>
                <th scope="col">Last change</th>
                <th scope="col">Known by</th>
                <th scope="col">Look</th>
              </tr>
            </thead>
            <tbody>
              {answer.objects.map((object) => (
                <Row key={object.id} of={object} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}
