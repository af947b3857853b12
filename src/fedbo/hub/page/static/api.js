// What the page asks of the hub. The session cookie says who asks.

const TIMEOUT = 15000;

/** The hub answered that something is wrong; the text says what. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
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
  return new Problem(answer.status, said);
}

async function json(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  options.signal = AbortSignal.timeout(TIMEOUT);
  const answer = await fetch(path, options);
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}

const of = (federation, rest) => `v1/federations/${encodeURIComponent(federation)}/${rest}`;

export const hub = () => json("GET", "healthz");
export const session = () => json("GET", "v1/session");
export const logIn = (token) => json("POST", "v1/session", { token });
export const logOut = () => json("DELETE", "v1/session");
export const auditPath = (federation) => of(federation, "audit");
/** All that is shown of a federation. */
export const overview = (federation, view) =>
  json("GET", of(federation, `overview?${new URLSearchParams(view)}`));
