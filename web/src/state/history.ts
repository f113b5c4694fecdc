/** Filters that were asked with Enter, the newest last; kept by the browser, not by the server. */

import { signal } from '@preact/signals';

const KEY = 'filters';
const MANY = 50;

function load(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(found) ? found.filter((text) => typeof text === 'string') : [];
  } catch {
    return [];
  }
}

export const filters = signal<string[]>(load());
let at: number | null = null;
let draft = '';

export function remember(filter: string): void {
  at = null;
  const text = filter.trim();
  if (text === '') return;
  filters.value = [...filters.peek().filter((other) => other !== text), text].slice(-MANY);
  localStorage.setItem(KEY, JSON.stringify(filters.value));
}

/** The filter before or after; at the end is what was being typed. */
export function step(by: -1 | 1, now: string): string | undefined {
  const all = filters.peek();
  if (at === null) {
    if (by === 1 || all.length === 0) return undefined;
    draft = now;
    at = all.length;
  }
  at = Math.max(0, at + by);
  if (at < all.length) return all[at];
  at = null;
  return draft;
}
