// The map of who resembles whom: one point for each agent, alike agents near each other.

import { $, h, keyed, set, svg, text } from "./dom.js";
import { count, cut, plural } from "./format.js";

const LETTER = 6.6; // width of a letter of a label, in pixels
const LINE = 14;
const NEAR = 24; // pixels from which the pointer finds a point
const CLOSE = 0.6; // a likeness from which two agents are joined by a line

let agents = [];
let places = new Map(); // where each agent was drawn last, in the units of the hub
let history = ""; // of the hub's database: versions of another one do not compare
let version = null;
let chosen = null; // the agent whose peers are shown
let reachable = null; // the one point that the tab key reaches; arrows go on from there
let own = null;
let frame = null;
let spots = new Map(); // where each agent is, in pixels

const alikes = (agent) =>
  agent.alike.map(([i, cosine]) => [agents[i], cosine]).filter(([peer]) => peer);
const spoken = (agent) =>
  alikes(agent).map(([peer, cosine]) => `${peer.sender} (${cosine.toFixed(2)})`).join(", ") || "nobody";

export function start() {
  const links = svg("g", { class: "links", "aria-hidden": "true" });
  const labels = svg("g", { class: "labels", "aria-hidden": "true" });
  const points = svg("g", {
    class: "points", role: "listbox", "aria-label": "Agents; arrow keys go from one to the next",
    onkeydown: move,
  });
  const picture = svg("svg", {
    class: "picture",
    onpointermove: (event) => choose(nearest(event) ?? focused()),
    onpointerleave: () => choose(focused()),
    onclick: (event) => points.known?.get(nearest(event))?.focus({ preventScroll: true }),
  }, links, points, labels);
  const empty = h("p", { class: "empty" }, "The map appears when two agents have published.");
  $("map").append(picture, empty);
  frame = { picture, links, points, labels, empty };
  new ResizeObserver(draw).observe($("map"));
}

/** Forget the last federation. */
export function clear() {
  agents = [];
  places = new Map();
  version = chosen = reachable = null;
}

export function update(map, me) {
  own = me;
  const isSame = map.history === history;
  if (isSame && version !== null && map.version < version) return; // another worker lags behind
  if (!isSame || map.version !== version) {
    ({ history, version } = map);
    agents = aligned(map.agents);
    places = new Map(agents.map((agent) => [agent.sender, agent]));
    if (!places.has(reachable)) reachable = agents.length ? agents[0].sender : null;
    if (!places.has(chosen)) chosen = null;
  }
  const whole = map.total > agents.length
    ? `The ${count(agents.length)} of ${count(map.total)} agents that published last.`
    : `${plural(agents.length, "agent")}, one point each.`;
  text($("map-about"), `${whole} The closer two are, the more alike are the functions in their messages.`);
  keyed($("map-rows"), agents, (agent) => agent.sender, tableRow, fillTableRow);
  draw();
}

function tableRow() {
  return h("tr", {}, h("th", { scope: "row" }), h("td", { class: "number" }), h("td"));
}

function fillTableRow(row, agent) {
  text(row.children[0], agent.sender);
  text(row.children[1], count(agent.trials));
  text(row.children[2], spoken(agent));
}

/** Turn or mirror a layout so that agents stay where they were: distances are all that counts. */
function aligned(found) {
  const shared = found.filter((agent) => places.has(agent.sender));
  let [a, b, c, d] = [0, 0, 0, 0];
  for (const { sender, x, y } of shared) {
    const { x: px, y: py } = places.get(sender);
    a += x * px + y * py;
    b += x * py - y * px;
    c += x * px - y * py;
    d += x * py + y * px;
  }
  const isMirrored = Math.hypot(c, d) > Math.hypot(a, b) * (1 + 1e-9);
  const angle = isMirrored ? Math.atan2(d, c) : Math.atan2(b, a);
  const [cos, sin] = shared.length < 2 ? [1, 0] : [Math.cos(angle), Math.sin(angle)];
  const flip = isMirrored && shared.length > 1 ? -1 : 1;
  return found.map((agent) => ({
    ...agent, x: agent.x * cos - flip * agent.y * sin, y: agent.x * sin + flip * agent.y * cos,
  }));
}

const radius = (agent) => Math.min(11, 4 + Math.sqrt(agent.trials) / 2);

function draw() {
  if (!frame) return;
  const { picture, links, points, labels, empty } = frame;
  const width = $("map").clientWidth;
  const isEmpty = agents.length < 2;
  empty.hidden = !isEmpty;
  set(picture, "hidden", isEmpty);
  if (isEmpty || !width) {
    text($("map-detail"), "");
    return;
  }
  const height = Math.round(Math.min(420, Math.max(260, width * 0.62)));
  set(picture, "width", width);
  set(picture, "height", height);
  const at = projection(width, height);
  spots = new Map(agents.map((agent) => [agent.sender, at(agent)]));

  keyed(points, agents, (agent) => agent.sender, point, (node, agent) => {
    const [x, y] = spots.get(agent.sender);
    node.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
    set(node.children[1], "r", radius(agent).toFixed(1));
    set(node.children[0], "r", (radius(agent) + 4).toFixed(1));
    set(node, "aria-label", `${agent.sender}, ${plural(agent.trials, "trial")}; most alike: ${spoken(agent)}`);
    set(node, "tabindex", agent.sender === reachable ? "0" : "-1");
    set(node, "aria-selected", agent.sender === chosen ? "true" : "false");
    set(node, "class", `point${agent.member === own ? " own" : ""}`);
  });

  const lines = [];
  agents.forEach((agent, i) => {
    for (const [j, cosine] of agent.alike) {
      const peer = agents[j];
      if (!peer) continue;
      const isChosen = agent.sender === chosen;
      if (isChosen || (cosine >= CLOSE && (i < j || !peer.alike.some(([k]) => k === i))))
        lines.push({ key: `${i < j || isChosen ? `${i}-${j}` : `${j}-${i}`}${isChosen ? "!" : ""}`, agent, peer, isChosen });
    }
  });
  keyed(links, lines, (line) => line.key, () => svg("line"), (node, line) => {
    const [[x1, y1], [x2, y2]] = [spots.get(line.agent.sender), spots.get(line.peer.sender)];
    for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) set(node, name, value.toFixed(1));
    set(node, "class", line.isChosen ? "link chosen" : "link");
  });

  const shown = placed(width, height);
  keyed(labels, shown, (label) => label.sender, () => svg("text"), (node, label) => {
    text(node, label.text);
    node.style.transform = `translate(${label.x.toFixed(1)}px, ${label.y.toFixed(1)}px)`;
    set(node, "text-anchor", label.anchor);
    set(node, "class", label.sender === chosen ? "label chosen" : "label");
  });
  describe();
}

function projection(width, height) {
  const xs = agents.map((agent) => agent.x);
  const ys = agents.map((agent) => agent.y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const [side, edge] = [Math.min(70, width / 7), 28];
  const scale = Math.min((width - 2 * side) / (right - left || 1), (height - 2 * edge) / (high - low || 1));
  return ({ x, y }) => [
    width / 2 + (x - (left + right) / 2) * scale,
    height / 2 - (y - (low + high) / 2) * scale,
  ];
}

/** Labels where there is room: the chosen agent and its peers first, then own ones, then others. */
function placed(width, height) {
  const first = new Set([chosen, ...(chosen ? alikes(places.get(chosen)).map(([peer]) => peer.sender) : [])]);
  const rank = (agent) => (agent.sender === chosen ? 3 : first.has(agent.sender) ? 2 : agent.member === own ? 1 : 0);
  const order = [...agents].sort((a, b) => rank(b) - rank(a) || b.trials - a.trials);
  const taken = agents.map((agent) => {
    const [x, y] = spots.get(agent.sender);
    const r = radius(agent);
    return [x - r, y - r, x + r, y + r];
  });
  const found = [];
  for (const agent of order) {
    const [x, y] = spots.get(agent.sender);
    const gap = radius(agent) + 4;
    const name = cut(agent.sender, 22);
    const wide = [...name].length * LETTER;
    const options = [
      [x + gap, y - LINE / 2, x + gap, "start"],
      [x - gap - wide, y - LINE / 2, x - gap, "end"],
      [x - wide / 2, y - gap - LINE, x, "middle"],
      [x - wide / 2, y + gap, x, "middle"],
    ];
    for (const [left, top, at, anchor] of options) {
      const box = [left, top, left + wide, top + LINE];
      const isInside = left >= 2 && top >= 0 && box[2] <= width - 2 && box[3] <= height;
      if (isInside && !taken.some((other) => overlap(box, other))) {
        taken.push(box);
        found.push({ sender: agent.sender, text: name, anchor, x: at, y: top + LINE - 3 });
        break;
      }
    }
  }
  return found;
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function point(agent) {
  return svg(
    "g",
    {
      role: "option", "data-sender": agent.sender,
      onfocus: () => { reachable = agent.sender; choose(agent.sender); },
      onblur: () => choose(null),
    },
    svg("circle", { class: "ring" }),
    svg("circle", { class: "dot" }),
  );
}

/** The agent next to the pointer, if there is one: points may cover each other. */
function nearest(event) {
  let [found, least] = [null, NEAR];
  for (const [sender, [x, y]] of spots) {
    const gap = Math.hypot(event.offsetX - x, event.offsetY - y);
    if (gap < least) [found, least] = [sender, gap];
  }
  return found;
}

function focused() {
  const node = document.activeElement;
  return node && frame.points.contains(node) ? node.dataset.sender : null;
}

function choose(sender) {
  if (sender === chosen) return;
  chosen = sender;
  draw();
}

function describe() {
  const agent = chosen && places.get(chosen);
  const mine = own ? " Yours are filled." : "";
  const hint = `Larger points have more trials behind their message.${mine} Choose one to see whom it resembles.`;
  text(
    $("map-detail"),
    agent ? `${agent.sender}: ${plural(agent.trials, "trial")}; most alike: ${spoken(agent)}` : hint,
  );
}

function move(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const i = agents.findIndex((agent) => agent.sender === reachable);
  const to = event.key === "Home" ? 0 : event.key === "End" ? agents.length - 1 : step && i + step;
  if (to === undefined || !agents[to]) return;
  event.preventDefault();
  frame.points.known.get(agents[to].sender).focus({ preventScroll: true });
}
