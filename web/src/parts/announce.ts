/** What screen readers are told: at most once a second. */

import { signal } from '@preact/signals';

export const said = signal('');
/** A short word on the screen about what a key or button has done. */
export const toast = signal('');

let timer = 0;
let waiting = '';
let gone = 0;

export function say(text: string): void {
  waiting = text;
  if (timer !== 0) return;
  timer = window.setTimeout(() => {
    timer = 0;
    said.value = waiting;
  }, 1000);
}

export function tell(text: string): void {
  toast.value = text;
  say(text);
  clearTimeout(gone);
  gone = window.setTimeout(() => { toast.value = ''; }, 4000);
}

export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    tell(`${what} copied`);
  } catch {
    tell('The browser does not let this page copy');
  }
}
