// Numbers and times as people read them.

const NUMBER = new Intl.NumberFormat("en-GB");
const SCORE = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4 });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const UNITS = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]];

export const now = () => Date.now() / 1000;
export const count = (value) => NUMBER.format(value);
export const date = (time) => DATE.format(time * 1000);
export const moment = (time) => MOMENT.format(time * 1000);
export const clock = (time) => CLOCK.format(time * 1000);
export const iso = (time) => new Date(time * 1000).toISOString();
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function score(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-4) ? value.toExponential(3) : SCORE.format(value);
}

export function ago(time) {
  const gap = now() - time;
  for (const [unit, seconds] of UNITS) {
    const n = Math.floor(Math.abs(gap) / seconds);
    if (n >= 1) return gap > 0 ? `${plural(n, unit)} ago` : `in ${plural(n, unit)}`;
  }
  return gap > -5 ? "just now" : "in a minute";
}

export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (value >= size) return `${(value / size).toFixed(value < 10 * size ? 1 : 0)} ${unit}`;
  return `${count(value)} B`;
}

/** The beginning and the end of a key, as people compare them. */
export function shortKey(key) {
  const word = key.replace(/^ed25519:/, "");
  return `${word.slice(0, 6)}…${word.slice(-4)}`;
}
