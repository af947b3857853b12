// The page of a hub: who is logged in, what is shown, and the loop that keeps it up to date.

import * as api from "./api.js";
import { $, set, show, text } from "./dom.js";
import { clock, now } from "./format.js";
import * as members from "./members.js";
import * as panels from "./panels.js";

const EVERY = 5000; // milliseconds between two questions to the hub
const SLOWEST = 15000; // the same while it does not answer

const view = { search: "", offset: 0, limit: 50 };
let me = null; // {member, federation}
let updated = null; // when the hub last answered
let failures = 0;
let timer = 0;
let asking = 0; // the number of the last question: answers to earlier ones are dropped

function only(id) {
  for (const part of ["loading", "log-in-view", "federation-view"]) show($(part), part === id);
}

const announce = (words) => text($("news"), words);

// the session

async function begin() {
  try {
    me = await api.session();
  } catch (problem) {
    fail(problem);
    timer = setTimeout(begin, EVERY);
    return;
  }
  if (me.member === null) return logInView();
  show($("account"), true);
  text($("who"), me.member);
  refresh();
}

function logInView(notice = "") {
  clearTimeout(timer);
  asking += 1;
  me = null;
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
    fail(problem);
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
  try {
    const found = await api.overview(me.federation, view);
    if (mine !== asking) return;
    succeed();
    if (getSelection().isCollapsed) render(found); // what is being copied stays
  } catch (problem) {
    if (mine !== asking) return;
    if (problem.status === 401) return logInView("Your session has ended. Log in again.");
    fail(problem);
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

function render(found) {
  document.title = `${found.federation.name} – fedbo hub`;
  $("export").href = api.auditPath(found.federation.name);
  only("federation-view");
  panels.header(found.federation);
  panels.figures(found.figures, found.releases !== null);
  panels.releases(found.releases);
  panels.feed(found.feed);
  members.update(found.members, view, me.member);
}

members.start(view, refresh);
$("log-in-form").addEventListener("submit", logIn);
$("log-out").addEventListener("click", logOut);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (me) refresh();
});
addEventListener("online", () => me && refresh());
api.hub().then((found) => text($("version"), `· fedbo ${found.version}`), () => {});
begin();
