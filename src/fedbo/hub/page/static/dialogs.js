// What asks before it changes something, and what is shown only once.

import * as api from "./api.js";
import { $, h, text } from "./dom.js";
import { moment, plural } from "./format.js";

const dialog = () => $("dialog");

let whenClosed = null;

function open(title, ...contents) {
  dialog().replaceChildren(h("h2", { id: "dialog-title" }, title), ...contents);
  if (!dialog().open) dialog().showModal();
  for (const field of dialog().querySelectorAll(".secret")) field.style.height = `${field.scrollHeight + 2}px`;
}

export function close() {
  if (dialog().open) dialog().close();
}

export function start() {
  // the secrets that a dialog showed do not stay in the page
  dialog().addEventListener("close", () => {
    dialog().replaceChildren();
    const then = whenClosed;
    whenClosed = null;
    then?.();
  });
}

/** A form with a button that does something and one that does not; it stays open if that fails. */
function form(title, contents, { label, danger = false, act }) {
  const error = h("p", { class: "error", role: "alert" });
  const submit = h("button", { type: "submit", class: danger ? "danger strong" : "primary" }, label());
  const node = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        text(error, "");
        try {
          await act();
        } catch (problem) {
          text(error, said(problem));
        }
        submit.disabled = false;
      },
      oninput: () => text(submit, label()),
    },
    ...contents,
    error,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), submit),
  );
  open(title, node);
}

const said = (problem) =>
  problem instanceof api.Problem ? sentence(problem.message) : "The hub does not answer. Try again.";
const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

export function toast(message) {
  text($("toast"), message);
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => text($("toast"), ""), 4000);
}

async function copy(value, field) {
  try {
    await navigator.clipboard.writeText(value);
  } catch {
    field.focus(); // without TLS, a browser has no clipboard for pages
    field.select();
    document.execCommand("copy");
  }
  toast("Copied.");
}

/** A secret in a field from which it can be copied. */
function secret(label, id, value) {
  const field = h("textarea", { id, readonly: true, rows: 1, spellcheck: "false", class: "secret" });
  field.value = value;
  field.addEventListener("focus", () => field.select());
  return h(
    "div", { class: "once" }, h("label", { for: id }, label), field,
    h("button", { type: "button", "aria-label": `Copy: ${label}`, onclick: () => copy(value, field) }, "Copy"),
  );
}

const done = () =>
  h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: close }, "Done"));

function numberField(id, label, value, most) {
  const field = h("input", { id, type: "number", min: 1, max: most, step: 1, required: true, value, inputmode: "numeric" });
  return [h("div", { class: "field" }, h("label", { for: id }, label), field), field];
}

const address = () => new URL(".", document.baseURI).href.replace(/\/$/, "");

export function invite(federation, changed) {
  const [uses, usesField] = numberField("uses", "Members who may use it", 1, 1000);
  form(`Invite to ${federation}`, [uses], {
    label: () => "Make the invitation",
    act: async () => {
      const made = await api.invite(federation, usesField.valueAsNumber);
      open(
        "The invitation",
        h("p", {}, `It is shown only now. Send it to whoever shall join: anyone who has it can use it. It is good for ${plural(made.uses, "member")}, until ${moment(made.expires)}.`),
        secret("Invitation", "invitation", made.invitation),
        secret("What the new member types, with the invitation in a file", "join-line", `fedbo join ${address()} --invite - < invitation.txt`),
        done(),
      );
      $("dialog").querySelector("button").focus();
      changed();
    },
  });
}

export function cancelInvitation(federation, one, changed) {
  form("Cancel the invitation?", [
    h("p", {}, `Nobody can join with the invitation of ${moment(one.created)} any more. Members that have joined stay.`),
  ], {
    label: () => "Cancel the invitation",
    danger: true,
    act: async () => {
      await api.cancelInvitation(federation, one.id);
      close();
      toast("The invitation is cancelled.");
      changed();
    },
  });
}

function choice(value, label, about, isChecked) {
  const id = `what-${value}`;
  return h(
    "div", { class: "choice" },
    h("input", { type: "radio", name: "what", id, value, checked: isChecked, "aria-describedby": `${id}-about` }),
    h("div", {}, h("label", { for: id }, label), h("p", { id: `${id}-about` }, about)),
  );
}

export function manage(federation, member, changed) {
  const choices = [];
  if (!member.is_revoked)
    choices.push(choice("revoke", "Revoke", "Its token ends and its messages are deleted. Nobody can take its name.", true));
  choices.push(choice("remove", "Remove", `${member.is_revoked ? "Its name" : "The same, and its name"} becomes free: it can be invited again.`, member.is_revoked));
  const what = () => $("dialog").querySelector("input[name=what]:checked")?.value ?? (member.is_revoked ? "remove" : "revoke");
  const facts = h(
    "dl", { class: "facts-list" },
    h("dt", {}, "Joined"), h("dd", {}, moment(member.joined)),
    h("dt", {}, "Last seen"), h("dd", {}, moment(member.seen)),
    h("dt", {}, "Key"), h("dd", {}, h("code", {}, member.key || "none, its messages are not signed")),
  );
  form(member.name, [facts, h("fieldset", { class: "choices" }, h("legend", { class: "unseen" }, "What to do"), ...choices)], {
    label: () => (what() === "revoke" ? "Revoke this member" : "Remove this member"),
    danger: true,
    act: async () => {
      const isRevoke = what() === "revoke";
      await (isRevoke ? api.revoke : api.remove)(federation, member.name);
      close();
      toast(`${member.name} is ${isRevoke ? "revoked" : "removed"}.`);
      changed();
    },
  });
}

export function leave(federation, name, left) {
  form(`Leave ${federation}?`, [
    h("p", {}, `The hub deletes ${name}, its messages and its token at once. Other members forget the messages at their next fetch. To come back, you need a new invitation.`),
  ], {
    label: () => "Leave the federation",
    danger: true,
    act: async () => {
      await api.leave(federation);
      close();
      left();
    },
  });
}

/** A new token ends the session: nothing more is asked once there is one. */
export function rotate(federation, stop, ended) {
  form("A new token?", [
    h("p", {}, "The old token stops working at once, and you are logged out. Your agents need the new token before they can publish or fetch again."),
    h("p", {}, "On the machine of your agents, there is an easier way, which stores the new token for them: ", h("code", {}, `fedbo hub rotate ${address()}`)),
  ], {
    label: () => "Make a new token",
    act: async () => {
      const made = await api.rotate(federation);
      stop();
      whenClosed = ended;
      open(
        "The new token",
        h("p", {}, "It is shown only now. Put it in the place of the old one on each machine that uses it: fedbo hub memberships says in which file."),
        secret("Token", "new-token", made.token),
        done(),
      );
      $("dialog").querySelector("button").focus();
    },
  });
}
