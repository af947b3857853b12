// Activity over time: how many changes there were in each hour of the last day or week.

import { $, h, keyed, set, svg, text } from "./dom.js";
import { clock, count, moment, plural, weekday } from "./format.js";

const HEIGHT = 180;
const [LEFT, BOTTOM, TOP] = [34, 20, 8];
const PERIODS = { day: { hours: 24, each: 1 }, week: { hours: 168, each: 6 } };
const KINDS = ["published", "refused", "other"];

let activity = null;
let frame = null;
let chosen = null;

export function start() {
  const grid = svg("g", { class: "grid" });
  const bars = svg("g", { class: "bars" });
  const picture = svg("svg", { class: "picture", role: "img", height: HEIGHT }, grid, bars);
  $("activity").append(picture);
  frame = { picture, grid, bars };
  new ResizeObserver(draw).observe($("activity"));
  picture.addEventListener("mousemove", point);
  picture.addEventListener("mouseleave", () => point(null));
  for (const choice of document.getElementsByName("period")) choice.addEventListener("change", draw);
}

export function clear() {
  activity = chosen = null;
}

export function update(found) {
  activity = found;
  draw();
}

/** Bars of one hour or of six, from the counts of the last 168 hours. */
function gathered() {
  const period = PERIODS[document.querySelector("input[name=period]:checked").value];
  const bars = [];
  for (let i = 168 - period.hours; i < 168; i += period.each) {
    const sum = (kind) => activity[kind].slice(i, i + period.each).reduce((a, b) => a + b, 0);
    const bar = { from: activity.start + 3600 * i, hours: period.each };
    for (const kind of KINDS) bar[kind] = sum(kind);
    bar.all = bar.published + bar.refused + bar.other;
    bars.push(bar);
  }
  return bars;
}

/** The next round number: the top of the axis. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 4, 6, 8, 10].map((n) => n * power).find((n) => n >= value && n >= 4);
}

function draw() {
  const width = $("activity").clientWidth;
  if (!activity || !width) return;
  const bars = gathered();
  const top = ceiling(Math.max(...bars.map((bar) => bar.all)));
  const step = (width - LEFT - 4) / bars.length;
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  set(frame.picture, "width", width);

  const marks = [0, top / 2, top].map((value) => ({ key: `y${value}`, value }));
  const every = bars.length === 24 ? 6 : 4;
  bars.forEach((bar, i) => {
    if (i % every === 0) marks.push({ key: `x${bar.from}`, bar, x: LEFT + i * step });
  });
  keyed(frame.grid, marks, (mark) => mark.key, () => svg("g", {}, svg("line"), svg("text")), (node, mark) => {
    const [line, label] = node.children;
    if (mark.bar) {
      text(label, bars.length === 24 ? clock(mark.bar.from) : weekday(mark.bar.from));
      set(label, "x", mark.x.toFixed(1));
      set(label, "y", HEIGHT - 5);
      line.setAttribute("class", "none");
    } else {
      text(label, count(mark.value));
      set(label, "x", LEFT - 6);
      set(label, "y", (y(mark.value) + 4).toFixed(1));
      set(label, "class", "end");
      for (const [name, value] of Object.entries({ x1: LEFT, x2: width, y1: y(mark.value), y2: y(mark.value) }))
        set(line, name, value.toFixed(1));
    }
  });

  keyed(frame.bars, bars, (bar) => bar.from, bar, (node, { from, ...counts }) => {
    const x = LEFT + bars.findIndex((bar) => bar.from === from) * step;
    let below = 0;
    KINDS.forEach((kind, i) => {
      const rect = node.children[i];
      set(rect, "x", (x + step * 0.12).toFixed(1));
      set(rect, "width", (step * 0.76).toFixed(1));
      set(rect, "y", y(below + counts[kind]).toFixed(1));
      set(rect, "height", Math.max(0, y(below) - y(below + counts[kind])).toFixed(1));
      below += counts[kind];
    });
    set(node, "class", from === chosen ? "bar chosen" : "bar");
  });

  const sums = KINDS.map((kind) => bars.reduce((sum, bar) => sum + bar[kind], 0));
  const period = bars.length === 24 ? "the last 24 hours" : "the last 7 days";
  const summary = `${count(sums[0])} published, ${count(sums[1])} refused, ${plural(sums[2], "other change")} in ${period}`;
  set(frame.picture, "aria-label", `Bar chart: ${summary}`);
  const one = bars.find((bar) => bar.from === chosen);
  text($("activity-when"), one ? `${when(one.from)}, ${one.hours === 1 ? "one hour" : "six hours"}` : `In ${period}`);
  KINDS.forEach((kind, i) => text($(`activity-${kind}`), count(one ? one[kind] : sums[i])));
  keyed($("activity-rows"), [...bars].reverse(), (bar) => bar.from, tableRow, fillTableRow);
}

const when = (time) => moment(time).replace(/:00$/, "");

function bar() {
  return svg("g", {}, ...KINDS.map((kind) => svg("rect", { class: kind })));
}

function tableRow() {
  return h("tr", {}, h("th", { scope: "row" }), ...KINDS.map(() => h("td", { class: "number" })));
}

function fillTableRow(row, bar) {
  text(row.children[0], when(bar.from));
  KINDS.forEach((kind, i) => text(row.children[i + 1], count(bar[kind])));
}

function point(event) {
  if (!activity) return;
  const bars = gathered();
  const share = event ? (event.offsetX - LEFT) / ($("activity").clientWidth - LEFT - 4) : -1;
  const found = bars[Math.floor(share * bars.length)];
  if (chosen !== (found ? found.from : null)) {
    chosen = found ? found.from : null;
    draw();
  }
}
