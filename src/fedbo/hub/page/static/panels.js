// The smaller parts of a federation's view: figures, releases, invitations, events.

import { $, h, keyed, set, show, text } from "./dom.js";
import { ago, bytes, count, date, iso, moment, plural, score } from "./format.js";

export function header(federation) {
  text($("name"), federation.name);
  text($("fingerprint"), federation.fingerprint);
  text($("created"), date(federation.created));
  set($("created"), "datetime", iso(federation.created));
}

export function figures(found, isPrivate) {
  const items = [
    ["Members", count(found.members), found.revoked ? `${count(found.revoked)} more revoked` : "enrolled"],
    ["Agents", count(found.agents), isPrivate ? "that contribute" : "with a message"],
    isPrivate
      ? ["Contributions", count(found.messages), "shown to nobody"]
      : ["Messages", count(found.messages), "kept by the hub"],
    ["Size", bytes(found.bytes), isPrivate ? "of all contributions" : "of all messages"],
    ["Seen today", count(found.seen), "members"],
    ["New today", count(found.new), isPrivate ? "contributions" : "messages"],
  ];
  keyed(
    $("figures"), items, ([name]) => name,
    () => h("div", { class: "figure" }, h("dt"), h("dd", { class: "value" }), h("dd", { class: "note" })),
    (node, item) => item.forEach((value, i) => text(node.children[i], value)),
  );
}

/** The releases of a federation with a privacy plan. */
export function releases(found) {
  show($("releases-card"), found !== null);
  if (found === null) return;
  const made = found.releases.length;
  const when = made ? `, the last one ${ago(found.releases[made - 1].time)}` : "";
  text($("releases-made"), `Made: ${count(made)} of ${count(found.planned)} planned${when}.`);
  const share = Math.min(1, (found.spent ?? 0) / found.epsilon);
  set($("releases-meter").firstElementChild, "width", `${(100 * share).toFixed(2)}%`);
  const spent = found.spent === null
    ? "What they cost is not known: this hub has no accountant installed."
    : `So far they cost each member ε = ${score(found.spent)}.`;
  text($("releases-spent"), `${spent} All planned ones cost at most ε = ${score(found.epsilon)}, with δ = ${score(found.delta)}.`);
  text($("releases-next"), next(found));
}

function next(found) {
  const contributed = `${plural(found.contributed, "member")} ${found.contributed === 1 ? "has" : "have"} contributed from ${plural(found.least_trials, "trial")} or more`;
  if (!found.is_reconciled)
    return "The hub was restored from a backup. No release is made before the operator has run fedbo hub reconcile.";
  if (found.releases.length >= found.planned) return "No more will be made.";
  return found.least_members
    ? `${contributed}. The hub makes the next release when there are ${count(found.least_members)}, and the plan’s days have passed.`
    : `${contributed}. The operator makes the next release.`;
}

export function invitations(found, onCancel) {
  show($("invitations-empty"), found.length === 0);
  keyed(
    $("invitations"), found, (one) => one.id,
    (one) => h("li", {}, h("span"), h("button", {
      type: "button", class: "small", "aria-label": `Cancel the invitation of ${moment(one.created)}`,
      onclick: () => onCancel(one),
    }, "Cancel…")),
    (node, one) => {
      text(node.children[0], `${plural(one.uses, "use")} left, expires ${ago(one.expires)}; made ${ago(one.created)}`);
      set(node.children[0], "title", `Expires ${moment(one.expires)}`);
    },
  );
}

export function feed(events) {
  show($("feed-empty"), events.length === 0);
  keyed(
    $("feed"), events, (event) => event.id,
    () => h("li", {}, h("time"), h("span", { class: "event" })),
    (node, event) => {
      text(node.children[0], ago(event.time));
      set(node.children[0], "datetime", iso(event.time));
      set(node.children[0], "title", moment(event.time));
      text(node.children[1], sentence(event));
      set(node, "class", ["revoked", "removed"].includes(event.action) ? "notable" : false);
    },
  );
}

/** What happened, in a sentence. */
export function sentence({ actor, action, subject, detail }) {
  const about = subject && subject !== actor ? subject : "";
  const size = detail.bytes ? ` (${bytes(detail.bytes)})` : "";
  const said = {
    created: () => `${actor} created the federation`,
    invited: () => `${actor} made an invitation${detail.uses ? ` for ${plural(detail.uses, "use")}` : ""}`,
    cancelled: () => `${actor} cancelled an invitation`,
    joined: () => `${about || actor} joined`,
    published: () => `${actor} published${about ? ` for ${about}` : ""}${size}`,
    withdrew: () => `${actor} withdrew its message${about ? ` of ${about}` : ""}`,
    left: () => `${about || actor} left; its messages are deleted`,
    revoked: () => `${actor} revoked ${about}`,
    removed: () => `${actor} removed ${about}`,
    rotated: () => `${about || actor} got a new token`,
    rekeyed: () => `${about || actor} has a new key`,
    updated: () => `${actor} changed the list of members`,
    operator: () => `${actor} changed the operators${about ? `: ${about}` : ""}`,
    released: () => `${actor} made release ${detail.number} of ${plural(detail.members, "member")}`,
    reconciled: () => `${actor} opened the federation after a restore`,
    restored: () => `${actor} restored the hub from a backup`,
  }[action];
  return said ? said() : `${actor}: ${action} ${about}`;
}
