// The table of members, of which the hub sends one page at a time.

import { $, h, keyed, set, show, text } from "./dom.js";
import { ago, bytes, count, date, iso, moment, shortKey } from "./format.js";

const COLUMNS = [
  { id: "name", label: "Name", sort: "name" },
  { id: "seen", label: "Last seen", sort: "seen" },
  { id: "agents", label: "Agents", number: true },
  { id: "trials", label: "Trials", number: true, title: "Trials behind the messages" },
  { id: "messages", label: "Messages", number: true },
  { id: "bytes", label: "Size", number: true, title: "Size of the messages" },
  { id: "key", label: "Key" },
  { id: "manage", label: "" },
];

let manage = () => {};

/** Args: what to do when the view changes, and when a member shall be managed. */
export function start(view, onChange, onManage) {
  manage = onManage;
  for (const column of COLUMNS) {
    const head = h("th", {
      scope: "col", role: "columnheader", title: column.title, class: column.number ? "number" : column.id,
    });
    if (column.sort) {
      head.append(h("button", {
        type: "button", class: "sort",
        onclick: () => { view.sort = column.sort; view.offset = 0; onChange(); },
      }, column.label));
      head.dataset.sort = column.sort;
    } else if (column.label) head.append(column.label);
    else head.append(h("span", { class: "unseen" }, "Manage"));
    $("members-head").append(head);
  }
  let timer = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { view.search = $("search").value.trim(); view.offset = 0; onChange(); }, 250);
  });
  const turn = (by) => () => { view.offset = Math.max(0, view.offset + by * view.limit); onChange(); };
  $("earlier").addEventListener("click", turn(-1));
  $("later").addEventListener("click", turn(1));
}

export function update(members, view, me, isOperator) {
  set($("members"), "class", isOperator ? "members managed" : "members");
  for (const head of $("members-head").children)
    if (head.dataset.sort)
      set(head, "aria-sort", head.dataset.sort === view.sort ? (view.sort === "seen" ? "descending" : "ascending") : false);
  keyed($("members-rows"), members.rows, (row) => row.name, create, (node, row) => fill(node, row, me));
  const isEmpty = members.rows.length === 0;
  show($("members"), !isEmpty);
  show($("members-empty"), isEmpty);
  text($("members-empty"), view.search ? `No member has “${view.search}” in its name.` : "No members yet.");
  show($("paging"), members.matching > view.limit || view.offset > 0);
  const last = view.offset + members.rows.length;
  text($("range"), isEmpty ? "" : `${count(view.offset + 1)}–${count(last)} of ${count(members.matching)}`);
  $("earlier").disabled = view.offset === 0;
  $("later").disabled = last >= members.matching;
}

function create(row) {
  const cells = {};
  for (const column of COLUMNS) {
    const isName = column.id === "name";
    cells[column.id] = h(isName ? "th" : "td", {
      "data-label": column.label, class: column.number ? "number" : column.id,
      scope: isName ? "row" : null, role: isName ? "rowheader" : "cell",
    });
  }
  cells.name.append(h("span", { class: "member-name" }), " ", h("span", { class: "tag" }));
  cells.seen.append(h("time"));
  cells.key.append(h("code"));
  cells.manage.append(h("button", {
    type: "button", class: "small", "aria-label": `Manage ${row.name}`,
    onclick: () => manage(cells.manage.row),
  }, "Manage…"));
  const node = h("tr", { role: "row" }, ...COLUMNS.map((column) => cells[column.id]));
  node.cells_ = cells;
  return node;
}

function fill(node, row, me) {
  const { name, seen, agents, trials, messages, bytes: size, key, manage: last } = node.cells_;
  set(node, "class", row.is_revoked ? "revoked" : row.name === me ? "own" : false);
  text(name.children[0], row.name);
  text(name.children[1], row.is_revoked ? "revoked" : row.name === me ? "you" : "");
  text(seen.firstChild, ago(row.seen));
  set(seen.firstChild, "datetime", iso(row.seen));
  set(seen.firstChild, "title", `${moment(row.seen)}; joined ${date(row.joined)}`);
  text(agents, count(row.agents));
  text(trials, count(row.trials));
  text(messages, count(row.messages));
  text(size, bytes(row.bytes));
  text(key.firstChild, row.key ? shortKey(row.key) : "unsigned");
  set(key.firstChild, "title", row.key || "Its messages are not signed");
  last.row = row;
}
