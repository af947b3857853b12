// What the page asks of the hub. The session cookie says who asks.

import { setClock } from "./format.js";

const TIMEOUT = 15000;

/** The hub answered that something is wrong; the text says what. */
export class Problem extends Error {
  constructor(status, slug, message) {
    super(message);
    this.status = status;
    this.slug = slug;
  }
}

async function problem(answer) {
  let document = {};
  try {
    document = await answer.json();
  } catch {
    // not from the hub, for example from a proxy before it
  }
  const said = document.detail || document.title || `the hub answered with status ${answer.status}`;
  return new Problem(answer.status, String(document.type || "").split("/").pop(), said);
}

async function json(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, cache: "no-store" };
  if (method !== "GET") options.headers["X-Fedbo"] = "1";
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  options.signal = AbortSignal.timeout(TIMEOUT);
  const answer = await fetch(path, options);
  setClock(Date.parse(answer.headers.get("Date")) / 1000);
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}

const of = (federation, rest = "") =>
  `v1/federations/${encodeURIComponent(federation)}${rest && `/${rest}`}`;
const query = (values) => `?${new URLSearchParams(values)}`;

export const hub = () => json("GET", "healthz");
export const session = () => json("GET", "v1/session");
export const logIn = (token) => json("POST", "v1/session", { token });
export const logOut = () => json("DELETE", "v1/session");
export const federations = () => json("GET", "v1/federations");
export const auditPath = (federation) => of(federation, "audit");
export const invite = (federation, uses) => json("POST", of(federation, "invitations"), { uses });
export const cancelInvitation = (federation, id) =>
  json("DELETE", of(federation, `invitations${query({ id })}`));
export const revoke = (federation, name) => json("POST", of(federation, "members/revoke"), { name });
export const remove = (federation, name) =>
  json("DELETE", of(federation, `members${query({ name })}`));
export const leave = (federation) => json("DELETE", of(federation, "member"));
export const rotate = (federation) => json("POST", of(federation, "member/token"));

/** All that is shown of a federation. */
export async function overview(federation, view) {
  const found = await json("GET", of(federation, `overview${query(view)}`));
  for (const event of found.feed) Object.assign(event, { id: event.number, time: Date.parse(event.time) / 1000 });
  return found;
}
