/**
 * The answers to the question on the screen. All belong to one state number: a newer question
 * aborts what the older one still waits for, and what comes late is dropped.
 */

import { batch, computed, effect, signal } from '@preact/signals';
import type { Count, Flows, Histogram, Tops } from '../net/types';
import { returns } from '../net/away';
import { type Params, Refused, ask, isAborted, locked } from '../net/server';
import { status } from './session';
import { step } from '../text/time';
import { shown, times } from './times';
import { view } from './view';

/** An answer, and whether a newer one is on its way. */
export interface Slot<T> {
  value: T | null;
  /** The number of the question that it answers. */
  number: number;
  busy: boolean;
}

const empty = <T>(): Slot<T> => ({ value: null, number: 0, busy: false });

export const count = signal<Slot<Count>>(empty());
export const histogram = signal<Slot<Histogram>>(empty());
export const tops = signal<Slot<Tops>>(empty());
export const flows = signal<Slot<Flows>>(empty());
/** Why there is no answer to what is typed. */
export const wrong = signal<Refused | null>(null);
/** The question whose answers are shown: rows are asked for by it. */
export const answered = signal<{ number: number; params: Params }>({ number: 0, params: {} });
/** How long the count took from the question to the answer, in milliseconds. */
export const took = signal(0);

/** Bars of the timeline; its width sets it. */
export const bins = signal(120);
/** Conversations that are asked for; the list grows it. */
export const flowsMost = signal(1000);

const WAIT_MS = 60;
/** How long a role waits for its tops before what is left is left out. */
const BUDGET_MS = 2000;

/** What every request of the question has. */
export const params = computed<Params>(() => {
  const { q, syntax } = view.value;
  const text = q.trim();
  const { from, to } = times.value;
  // Without a filter, a language asks for nothing.
  return { q: text, syntax: text === '' ? undefined : syntax, from, to };
});

let number = 0;
let current = new AbortController();
let timer = 0;
let lastKey = '';
let lastReturn = 0;

const SORT = { bytes: 'bytes', time: 'start', packets: 'packets' } as const;

/** Ends what is being asked; the last answer stays. */
export function stop(): void {
  clearTimeout(timer);
  current.abort();
  number += 1;
  for (const slot of [count, histogram, tops, flows]) slot.value = { ...slot.peek(), busy: false } as never;
}

/** Asks again at once, whatever has not changed. */
export function askAgain(): void {
  lastKey = '';
  start(params.peek(), 0);
}

function start(asked: Params, wait: number): void {
  clearTimeout(timer);
  current.abort();
  current = new AbortController();
  number += 1;
  const own = number;
  const { signal: abort } = current;
  count.value = { ...count.peek(), busy: true };
  timer = window.setTimeout(() => void run(own, asked, abort), wait);
}

async function run(own: number, asked: Params, abort: AbortSignal): Promise<void> {
  const started = performance.now();
  try {
    const found = await ask<Count>('/api/v1/count', asked, abort);
    if (own !== number) return;
    batch(() => {
      count.value = { value: found, number: own, busy: false };
      wrong.value = null;
      took.value = performance.now() - started;
      answered.value = { number: own, params: asked };
      for (const slot of [histogram, tops, flows]) slot.value = { ...slot.peek(), busy: true } as never;
    });
    // What is looked at first comes first; the conversations of millions of packets come last.
    const isFlows = view.peek().tab === 'flows';
    if (isFlows) await fill(own, flows, () => askFlows(asked, abort));
    await fill(own, histogram, () => askHistogram(asked, abort));
    await fill(own, tops, () => askTops(asked, abort));
    if (!isFlows) await fill(own, flows, () => askFlows(asked, abort));
  } catch (error) {
    if (isAborted(error) || own !== number) return;
    count.value = { ...count.peek(), busy: false };
    if (error instanceof Refused) wrong.value = error;
  }
}

/** Fills one of the slots; one that fails leaves the others alone. */
async function fill<T>(own: number, slot: { value: Slot<T>; peek(): Slot<T> }, get: () => Promise<T>) {
  try {
    const value = await get();
    if (own === number) slot.value = { value, number: own, busy: false };
  } catch (error) {
    if (own === number && !isAborted(error)) slot.value = { ...slot.peek(), busy: false };
  }
}

function askHistogram(asked: Params, abort: AbortSignal): Promise<Histogram> {
  const { stack, by } = view.peek();
  const range = shown.peek();
  // As many bars as there is room for, of the times that are shown, whatever is found in them.
  const span = range === null ? undefined : step(range.to - range.from, bins.peek()).toString();
  const wide = span === undefined ? { bins: bins.peek() } : { span_ns: span };
  const more = { ...wide, stack, stack_n: 12, by: by === 'bytes' ? by : undefined };
  return ask<Histogram>('/api/v1/histogram', { ...asked, ...more }, abort);
}

function askTops(asked: Params, abort: AbortSignal): Promise<Tops> {
  const { tops: names, by } = view.peek();
  const more = { field: names.join(), n: 5, by: by === 'bytes' ? by : undefined, budget_ms: BUDGET_MS };
  return ask<Tops>('/api/v1/top', { ...asked, ...more }, abort);
}

function askFlows(asked: Params, abort: AbortSignal): Promise<Flows> {
  const { tab, sort } = view.peek();
  // The line of the count needs their number only.
  const n = tab === 'flows' ? flowsMost.peek() : 1;
  return ask<Flows>('/api/v1/flows', { ...asked, sort: SORT[sort], n }, abort);
}

/** Asks whenever the question changes. */
export function listen(): void {
  effect(() => {
    const asked = params.value;
    const isBack = returns.value !== lastReturn;
    lastReturn = returns.value;
    // Before it is known what is served, nobody knows what the last hour is.
    if (status.value === null || locked.value) return;
    const key = JSON.stringify(asked);
    if (key === lastKey && !isBack) return;
    const isTyped = lastKey !== '' && document.activeElement?.id === 'q';
    lastKey = key;
    flowsMost.value = 1000;
    start(asked, isTyped ? WAIT_MS : 0);
  });
  // The same question, in other words.
  const again = <T>(slot: { value: Slot<T>; peek(): Slot<T> }, get: (a: Params, s: AbortSignal) => Promise<T>) => {
    let is = true;
    return () => {
      const { number: own, params: asked } = answered.peek();
      if (is || own !== number || own === 0) {
        is = false;
        return;
      }
      slot.value = { ...slot.peek(), busy: true };
      void fill(own, slot, () => get(asked, current.signal));
    };
  };
  const pick = (of: () => unknown, then: () => void) => {
    const picked = computed(() => JSON.stringify(of()));
    effect(() => {
      picked.value;
      then();
    });
  };
  pick(() => [view.value.stack, view.value.by, bins.value], again(histogram, askHistogram));
  pick(() => [view.value.tops, view.value.by], again(tops, askTops));
  pick(() => [view.value.tab, view.value.sort, flowsMost.value], again(flows, askFlows));
}
