/** The times that are asked about, and how they change. */

import { computed } from '@preact/signals';
import { HOUR, type Ns, SECOND, format, parse } from '../text/time';
import { status } from './session';
import { change, reask, view } from './view';

export interface Times {
  from?: string;
  to?: string;
}

export interface Range {
  from: Ns;
  to: Ns;
}

/** First and last packet that is kept, if the role may know. */
export const extent = computed<Range | null>(() => {
  const kept = status.value?.kept;
  const from = parse(kept?.first ?? '');
  const to = parse(kept?.last ?? '');
  // The end is not included, and the last packet is.
  return from === undefined || to === undefined ? null : { from, to: to + 1n };
});

/** Where the last hour starts, in an archive that has more. */
const lastHour = computed(() => {
  const all = extent.value;
  // A little more than an hour is all shown.
  if (all === null || all.to - all.from <= HOUR + HOUR / 50n) return undefined;
  if (status.value?.recorder?.running === true) return '-1h';
  return format(all.to - HOUR);
});

/** What the server is asked: as in the address, or else the last hour of the archive. */
export const times = computed<Times>(() => {
  const { from, to } = view.value;
  if (from !== undefined || to !== undefined) return { from, to };
  return { from: lastHour.value };
});

const UNITS: Record<string, Ns> = {
  s: SECOND, m: 60n * SECOND, h: HOUR, d: 24n * HOUR, w: 168n * HOUR,
};

/** A time as it may stand in an address, if this page understands it; the server knows more. */
export function absolute(text: string | undefined, now: Ns): Ns | undefined {
  if (text === undefined) return undefined;
  if (text === 'now') return now;
  const ago = /^-(\d+)([smhdw])$/.exec(text);
  if (ago) return now - BigInt(ago[1] ?? 0) * (UNITS[ago[2] ?? 's'] ?? SECOND);
  const whole = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?)?Z?$/.exec(text);
  if (!whole) return undefined;
  const date = text.replace('Z', '');
  if (date.length === 10) return parse(`${date}T00:00:00Z`);
  return parse(date.length === 16 ? `${date}:00Z` : `${date}Z`);
}

export function now(): Ns {
  return BigInt(Date.now()) * 1_000_000n;
}

/** The times of the timeline, if they are known. */
export const shown = computed<Range | null>(() => {
  const all = extent.value;
  const asked = times.value;
  const at = now();
  const from = absolute(asked.from, at) ?? (asked.from === undefined ? all?.from : undefined);
  const to = absolute(asked.to, at) ?? (asked.to === undefined ? end(asked) : undefined);
  return from === undefined || to === undefined || from >= to ? null : { from, to };
});

/** Where the times end if nothing says so: now, if they follow a recorder. */
function end(asked: Times): Ns | undefined {
  const last = extent.value?.to;
  const follows = asked.from?.startsWith('-') === true && status.value?.recorder?.running === true;
  return follows || last === undefined ? now() : last;
}

/** Shows other times: those of a zoom, a move or a jump. */
export function setTimes(range: Range, how: 'push' | 'replace' = 'push'): void {
  const to = range.to > range.from ? range.to : range.from + 1n;
  reask({ from: format(range.from < 0n ? 0n : range.from), to: format(to), live: false }, how);
}

/** Everything that is kept. */
export function showAll(): void {
  const all = extent.value;
  if (all === null) reask({ from: undefined, to: undefined, live: false });
  else setTimes(all);
}

export function zoom(by: number, around?: Ns, how: 'push' | 'replace' = 'push'): void {
  const range = shown.value;
  if (range === null) return;
  const middle = around ?? (range.from + range.to) / 2n;
  const scaled = (ns: Ns) => BigInt(Math.round(Number(ns) * by));
  const to = { from: middle - scaled(middle - range.from), to: middle + scaled(range.to - middle) };
  if (to.to - to.from >= 2n) setTimes(to, how);
}

/** Earlier or later, by a share of what is shown. */
export function move(share: number, how: 'push' | 'replace' = 'push'): void {
  const range = shown.value;
  if (range === null) return;
  const by = BigInt(Math.round(Number(range.to - range.from) * share));
  setTimes({ from: range.from + by, to: range.to + by }, how);
}

export function setLive(live: boolean): void {
  if (live) reask({ live, from: view.peek().from?.startsWith('-') ? view.peek().from : '-15m', to: undefined });
  else change({ live }, 'push');
}
