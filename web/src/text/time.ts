/** Times in nanoseconds since 1970, which a `number` has no room for: they are `bigint`. */

import { signal } from '@preact/signals';

export type Ns = bigint;
export type Zone = 'UTC' | 'local';

export const SECOND = 1_000_000_000n;
export const MINUTE = 60n * SECOND;
export const HOUR = 60n * MINUTE;
export const DAY = 24n * HOUR;

/** One zone for the whole page; the reader's choice, not the link's. */
export const zone = signal<Zone>(localStorage.getItem('zone') === 'local' ? 'local' : 'UTC');

export function setZone(to: Zone): void {
  zone.value = to;
  localStorage.setItem('zone', to);
}

/** Reads `2026-01-05T08:00:00.000000072Z`, as the server writes it. */
export function parse(text: string): Ns | undefined {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z$/.exec(text);
  if (!found) return undefined;
  const ms = Date.parse(`${found[1]}Z`);
  if (Number.isNaN(ms)) return undefined;
  return BigInt(ms) * 1_000_000n + BigInt((found[2] ?? '').padEnd(9, '0') || '0');
}

/** As the server reads it, with as many digits as are needed. */
export function format(ns: Ns): string {
  const second = ns / SECOND;
  const rest = (ns % SECOND).toString().padStart(9, '0').replace(/0+$/, '');
  const text = new Date(Number(second) * 1000).toISOString().slice(0, 19);
  return `${text}${rest === '' ? '' : `.${rest}`}Z`;
}

const two = (number: number) => String(number).padStart(2, '0');

interface Parts {
  date: string;
  clock: string;
  fraction: string;
}

/** Date, clock and nine digits behind it, in the zone of the page. */
export function parts(ns: Ns): Parts {
  const at = new Date(Number(ns / SECOND) * 1000);
  const fraction = (ns % SECOND).toString().padStart(9, '0');
  if (zone.value === 'UTC') {
    const text = at.toISOString();
    return { date: text.slice(0, 10), clock: text.slice(11, 19), fraction };
  }
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return { date, clock, fraction };
}

/** A clock with as many digits as tell times apart that are `step` from each other. */
export function clock(ns: Ns, step: Ns): string {
  const { clock: text, fraction } = parts(ns);
  if (step % MINUTE === 0n) return text.slice(0, 5);
  if (step % SECOND === 0n) return text;
  const digits = step % 1_000_000n === 0n ? 3 : step % 1_000n === 0n ? 6 : 9;
  return `${text}.${fraction.slice(0, digits)}`;
}

/** An age or a length in two parts: 8 d 4 h, 3 min 18 s, 12 ms. */
export function length(ns: Ns): string {
  const pair = (a: Ns, unit: string, b: Ns, less: string) =>
    b === 0n ? `${a} ${unit}` : `${a} ${unit} ${b} ${less}`;
  if (ns >= DAY) return pair(ns / DAY, 'd', (ns % DAY) / HOUR, 'h');
  if (ns >= HOUR) return pair(ns / HOUR, 'h', (ns % HOUR) / MINUTE, 'min');
  if (ns >= MINUTE) return pair(ns / MINUTE, 'min', (ns % MINUTE) / SECOND, 's');
  const unit = (size: number, name: string) =>
    `${(Number(ns) / size).toFixed(2).replace(/\.?0+$/, '')} ${name}`;
  if (ns >= SECOND) return unit(1e9, 's');
  if (ns >= 1_000_000n) return unit(1e6, 'ms');
  if (ns >= 1_000n) return unit(1e3, 'us');
  return `${ns} ns`;
}

/** The steps that people count time in, ascending. */
const STEPS: Ns[] = [];
for (let power = 1n; power < SECOND; power *= 10n) STEPS.push(power, 2n * power, 5n * power);
for (const unit of [SECOND, MINUTE]) {
  for (const n of [1n, 2n, 5n, 10n, 15n, 30n]) STEPS.push(n * unit);
}
for (const n of [1n, 2n, 3n, 6n, 12n]) STEPS.push(n * HOUR);
for (const n of [1n, 2n, 7n, 14n, 28n, 91n, 182n, 365n, 1825n, 3650n]) STEPS.push(n * DAY);

/** The shortest round step that fits into a length at most `most` times. */
export function step(over: Ns, most: number): Ns {
  return STEPS.find((one) => over / one <= BigInt(most)) ?? STEPS[STEPS.length - 1] ?? DAY;
}
