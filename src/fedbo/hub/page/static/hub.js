// The page of a hub: who is logged in, what is shown, and the loop that keeps it up to date.

import * as api from "./api.js";
import * as dialogs from "./dialogs.js";
import { $, h, keyed, set, show, text } from "./dom.js";
import { clock, now, plural } from "./format.js";
import * as members from "./members.js";
import * as panels from "./panels.js";

const EVERY = 5000; // milliseconds between two questions to the hub
const SLOWEST = 15000; // the same while it does not answer
const IMPORTANT = new Set(["joined", "left", "revoked", "removed", "updated", "released"]);

const view = { search: "", sort: "name", offset: 0, limit: 50 };
let me = null; // {role, name, federation}
let shown = null; // the last overview
let updated = null; // when the hub last answered
let failures = 0;
let timer = 0;
let asking = 0; // the number of the last question: answers to earlier ones are dropped

const federation = () => {
  if (me.role === "member") return me.federation;
  const name = location.hash.match(/^#\/([a-z0-9-]+)$/);
  return name ? name[1] : null;
};

function only(id) {
  for (const part of ["loading", "log-in-view", "home-view", "federation-view"]) show($(part), part === id);
}

function announce(words) {
  text($("news"), words);
}

// the session

async function begin() {
  try {
    me = await api.session();
  } catch (problem) {
    fail(problem);
    timer = setTimeout(begin, EVERY);
    return;
  }
  if (me.role === null) return logInView();
  succeed();
  show($("account"), true);
  text($("who"), me.role === "operator" ? `Operator ${me.name}` : me.name);
  set($("who"), "title", `Logged in as ${me.role} ${me.name}`);
  for (const node of document.querySelectorAll("[data-role]"))
    show(node, node.dataset.role.split(" ").includes(me.role));
  show($("all-federations").parentElement, me.role === "operator");
  refresh();
}

/** Ask the hub nothing more. */
function stop() {
  clearTimeout(timer);
  asking += 1;
  me = null;
}

function logInView(notice = "") {
  stop();
  shown = null;
  dialogs.close();
  show($("account"), false);
  show($("connection"), false);
  document.title = "Log in – fedbo hub";
  text($("log-in-notice"), notice);
  show($("log-in-notice"), notice !== "");
  text($("log-in-error"), "");
  only("log-in-view");
  $("token").focus();
}

async function logIn(event) {
  event.preventDefault();
  const button = $("log-in-form").querySelector("button");
  button.disabled = true;
  text($("log-in-error"), "");
  set($("token"), "aria-invalid", false);
  try {
    await api.logIn($("token").value.trim());
    $("token").value = "";
    only("loading");
    await begin();
    $("main").focus({ preventScroll: true });
  } catch (problem) {
    const said = problem.status === 401 ? "This token is not valid. Copy it again, completely." : problem.message;
    text($("log-in-error"), problem instanceof api.Problem ? said : "The hub does not answer. Try again.");
    set($("token"), "aria-invalid", "true");
    $("token").focus();
    $("token").select();
  }
  button.disabled = false;
}

async function logOut() {
  try {
    await api.logOut();
    logInView("You are logged out.");
  } catch (problem) {
    if (problem.status === 401) logInView("You are logged out.");
    else dialogs.toast("The hub does not answer: you are still logged in.");
  }
}

// the loop

function plan() {
  clearTimeout(timer);
  if (me && !document.hidden) timer = setTimeout(refresh, Math.min(SLOWEST, EVERY * 2 ** Math.min(failures, 3)));
}

async function refresh() {
  clearTimeout(timer);
  const mine = (asking += 1);
  const name = federation();
  try {
    const found = name ? await api.overview(name, view) : await api.federations();
    if (mine !== asking) return;
    succeed();
    if (name) render(found);
    else home(found);
  } catch (problem) {
    if (mine !== asking) return;
    if (problem.status === 401) return logInView("Your session has ended. Log in again.");
    if (problem.status === 404 && me.role === "operator") location.hash = "#/";
    else fail(problem);
  }
  plan();
}

function succeed() {
  text($("loading"), "Loading…");
  if (failures) announce("The hub answers again.");
  failures = 0;
  updated = now();
  show($("connection"), true);
  text($("connection"), "Live");
  set($("connection"), "class", "connection live");
  set($("connection"), "title", "This page follows the hub without reloading");
}

function fail(problem) {
  failures += 1;
  const busy = problem instanceof api.Problem;
  const since = updated === null ? "" : `, last updated ${clock(updated)}`;
  text($("loading"), busy ? problem.message : "The hub does not answer.");
  if (failures === 1) announce(busy ? "The hub has a problem." : "The hub does not answer.");
  show($("connection"), true);
  text($("connection"), `${busy ? "Problem" : "Offline"}${since}`);
  set($("connection"), "class", "connection lost");
  set($("connection"), "title", busy ? problem.message : "The hub does not answer; this page keeps trying");
}

// what is shown

function home(found) {
  if (found.length === 1) {
    location.replace(`#/${found[0].name}`);
    return;
  }
  document.title = "Federations – fedbo hub";
  only("home-view");
  show($("home-empty"), found.length === 0);
  keyed(
    $("federations"), found, (one) => one.name,
    (one) => h("li", { class: "card" }, h("a", { href: `#/${one.name}` }, one.name), h("p", { class: "about" })),
    (node, one) => text(node.children[1], plural(one.members, "member")),
  );
}

function render(found) {
  if (shown && shown.federation.name === found.federation.name) tell(found.feed, shown.feed);
  shown = found;
  const isOperator = me.role === "operator";
  document.title = `${found.federation.name} – fedbo hub`;
  $("export").href = api.auditPath(found.federation.name);
  set($("export"), "download", `${found.federation.name}-audit.jsonl`);
  only("federation-view");
  panels.header(found.federation);
  show($("closed"), !found.is_reconciled);
  panels.figures(found.figures, found.releases !== null);
  panels.releases(found.releases);
  panels.feed(found.feed);
  if (isOperator) panels.invitations(found.invitations, (one) => dialogs.cancelInvitation(found.federation.name, one, refresh));
  members.update(found.members, view, isOperator ? null : me.name, isOperator);
}

/** Tell screen readers what matters of what is new. */
function tell(feed, before) {
  const last = before.length ? before[0].id : 0;
  const news = feed.filter((event) => event.id > last && IMPORTANT.has(event.action));
  if (news.length) announce(news.slice(0, 3).map(panels.sentence).join(". "));
}

function start() {
  dialogs.start();
  members.start(view, refresh, (row) => dialogs.manage(federation(), row, refresh));
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part after the # says which federation is shown
    $("main").focus();
  });
  $("log-in-form").addEventListener("submit", logIn);
  $("log-out").addEventListener("click", logOut);
  $("invite").addEventListener("click", () => dialogs.invite(federation(), refresh));
  $("rotate").addEventListener("click", () =>
    dialogs.rotate(federation(), stop, () => logInView("The old token has ended. Log in with the new one.")));
  $("leave").addEventListener("click", () =>
    dialogs.leave(federation(), me.name, () => logInView("You have left the federation.")));
  addEventListener("hashchange", () => {
    if (!me) return;
    shown = null;
    Object.assign(view, { search: "", offset: 0 });
    $("search").value = "";
    only("loading");
    refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (!me) return;
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });
  addEventListener("online", () => me && refresh());
  api.hub().then((found) => text($("version"), `· fedbo ${found.version}`), () => {});
  begin();
}

start();
