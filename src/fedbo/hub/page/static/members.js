// The table of members, of which the hub sends one page at a time.

import { $, h, show, text } from "./dom.js";
import { ago, bytes, count, date, iso, moment, shortKey } from "./format.js";

const COLUMNS = [
  { id: "name", label: "Name" },
  { id: "seen", label: "Last seen" },
  { id: "agents", label: "Agents", number: true },
  { id: "trials", label: "Trials", number: true, title: "Trials behind the messages" },
  { id: "messages", label: "Messages", number: true },
  { id: "bytes", label: "Size", number: true, title: "Size of the messages" },
  { id: "key", label: "Key" },
];

/** Build the head of the table, and call `onChange` when other members are to be shown. */
export function start(view, onChange) {
  for (const { id, label, number, title } of COLUMNS)
    $("members-head").append(h("th", { scope: "col", role: "columnheader", title, class: number ? "number" : id }, label));
  let timer = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { view.search = $("search").value.trim(); view.offset = 0; onChange(); }, 250);
  });
  const turn = (by) => () => { view.offset = Math.max(0, view.offset + by * view.limit); onChange(); };
  $("earlier").addEventListener("click", turn(-1));
  $("later").addEventListener("click", turn(1));
}

export function update(members, view, me) {
  $("members-rows").replaceChildren(...members.rows.map((row) => line(row, me)));
  const isEmpty = members.rows.length === 0;
  show($("members"), !isEmpty);
  show($("members-empty"), isEmpty);
  text($("members-empty"), `No member has “${view.search}” in its name.`);
  show($("paging"), members.matching > view.limit || view.offset > 0);
  const last = view.offset + members.rows.length;
  text($("range"), isEmpty ? "" : `${count(view.offset + 1)}–${count(last)} of ${count(members.matching)}`);
  $("earlier").disabled = view.offset === 0;
  $("later").disabled = last >= members.matching;
}

function line(row, me) {
  const tag = row.is_revoked ? "revoked" : row.is_suspended ? "suspended" : row.name === me ? "you" : "";
  const when = { datetime: iso(row.seen), title: `${moment(row.seen)}; joined ${date(row.joined)}` };
  const contents = {
    name: [h("span", { class: "member-name" }, row.name), " ", h("span", { class: "tag" }, tag)],
    seen: [h("time", when, ago(row.seen))],
    agents: [count(row.agents)],
    trials: [count(row.trials)],
    messages: [count(row.messages)],
    bytes: [bytes(row.bytes)],
    key: [h("code", { title: row.key }, shortKey(row.key))],
  };
  const cells = COLUMNS.map(({ id, label, number }) => {
    const is = id === "name" ? { tag: "th", scope: "row", role: "rowheader" } : { tag: "td", role: "cell" };
    const about = { "data-label": label, class: number ? "number" : id, scope: is.scope, role: is.role };
    return h(is.tag, about, ...contents[id]);
  });
  return h("tr", { role: "row", class: row.is_revoked ? "revoked" : false }, ...cells);
}
