// The smaller parts of a federation's view: figures, releases, events.

import { $, h, set, show, text } from "./dom.js";
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
  $("figures").replaceChildren(
    ...items.map(([name, value, note]) =>
      h("div", { class: "figure" }, h("dt", {}, name), h("dd", { class: "value" }, value), h("dd", { class: "note" }, note))),
  );
}

/** The releases of a federation with a privacy plan. */
export function releases(found) {
  show($("releases-card"), found !== null);
  if (found === null) return;
  const made = found.releases.length;
  const when = made ? `, the last one ${ago(found.releases[made - 1].time)}` : "";
  text($("releases-made"), `Made: ${count(made)} of ${count(found.planned)} planned${when}.`);
  const spent = found.spent === null
    ? "What they cost is not known: this hub has no accountant installed."
    : `So far they cost each member ε = ${score(found.spent)}.`;
  text($("releases-spent"), `${spent} All planned ones cost at most ε = ${score(found.epsilon)}, with δ = ${score(found.delta)}.`);
  text($("releases-next"), next(found));
}

function next(found) {
  const contributed = `${plural(found.contributed, "member")} ${found.contributed === 1 ? "has" : "have"} contributed from ${plural(found.least_trials, "trial")} or more`;
  if (found.is_restored)
    return "The hub was restored from a backup. No release is made before the operator has run fedbo hub admit.";
  if (found.releases.length >= found.planned) return "No more will be made.";
  return found.least_members
    ? `${contributed}. The hub makes the next release when there are ${count(found.least_members)}, and the plan’s days have passed.`
    : `${contributed}. The operator makes the next release.`;
}

export function feed(events) {
  show($("feed-empty"), events.length === 0);
  $("feed").replaceChildren(
    ...events.map((event) => {
      const when = Date.parse(event.time) / 1000;
      const time = h("time", { datetime: event.time, title: moment(when) }, ago(when));
      return h("li", {}, time, h("span", { class: "event" }, sentence(event)));
    }),
  );
}

/** What happened, in a sentence. */
export function sentence({ actor, action, subject, detail }) {
  const about = subject && subject !== actor ? subject : "";
  const size = detail.bytes ? ` (${bytes(detail.bytes)})` : "";
  const said = {
    joined: () => `${about || actor} joined`,
    published: () => `${actor} published${about ? ` for ${about}` : ""}${size}`,
    withdrew: () => `${actor} withdrew its message${about ? ` of ${about}` : ""}`,
    left: () => `${about || actor} left; its messages are deleted`,
    revoked: () => `${actor} revoked ${about}`,
    removed: () => `${actor} removed ${about}`,
    rotated: () => `${about || actor} got a new token`,
    rekeyed: () => `${about || actor} has a new key`,
  }[action];
  return said ? said() : `${actor}: ${action} ${about}`;
}
