/** Whether the server answers. If it does not, it is tried again after 1, 2, 4 .. 30 s. */

import { signal } from '@preact/signals';

export interface Away {
  /** When it last answered. */
  since: number;
  /** When it is tried again. */
  next: number;
}

export const away = signal<Away | null>(null);
/** Grows when the server is back: what was asked meanwhile is asked again. */
export const returns = signal(0);

let last = Date.now();
let wait = 1000;
let timer = 0;

export function heard(): void {
  last = Date.now();
  if (away.peek() === null) return;
  away.value = null;
  wait = 1000;
  clearTimeout(timer);
  returns.value += 1;
}

export function failed(): void {
  if (away.peek() !== null) return;
  away.value = { since: last, next: Date.now() + wait };
  timer = window.setTimeout(again, wait);
}

async function again(): Promise<void> {
  try {
    await fetch('/healthz', { cache: 'no-store' });
    heard();
  } catch {
    wait = Math.min(2 * wait, 30_000);
    const since = away.peek()?.since ?? last;
    away.value = { since, next: Date.now() + wait };
    timer = window.setTimeout(again, wait);
  }
}
