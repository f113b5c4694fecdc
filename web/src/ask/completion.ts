/** What may stand where the caret is: words and fields at once, values of the archive after that. */

import { batch, signal } from '@preact/signals';
import type { Tops } from '../net/types';
import { ask, isAborted } from '../net/server';
import { fields } from '../state/session';
import { times } from '../state/times';
import { view } from '../state/view';
import { PCAP, guess, valuesOf } from './words';

export interface Choice {
  text: string;
  about: string;
  /** Packets that have the value. */
  packets?: number;
}

export interface Choices {
  heading: string;
  /** The part of the filter that a choice replaces. */
  start: number;
  end: number;
  list: Choice[];
  chosen: number;
}

export const choices = signal<Choices | null>(null);

const MANY = 8;
const VALUES = 400;
let current = new AbortController();

export function close(): void {
  current.abort();
  choices.value = null;
}

/** Looks for what may stand at the caret. `wanted`: also if nothing was typed yet. */
export async function look(filter: string, caret: number, wanted: boolean): Promise<void> {
  current.abort();
  current = new AbortController();
  const { signal: abort } = current;
  const start = filter.slice(0, caret).search(/[\w.:/-]*$/);
  const typed = filter.slice(start, caret);
  const before = filter.slice(0, start);
  const end = caret + (/^[\w.:/-]*/.exec(filter.slice(caret))?.[0].length ?? 0);
  const show = (heading: string, list: Choice[]) => {
    const found = list.filter(({ text }) => text !== typed).slice(0, MANY);
    const isSame = choices.peek()?.start === start;
    const chosen = isSame ? Math.min(choices.peek()?.chosen ?? 0, found.length - 1) : 0;
    batch(() => {
      choices.value = found.length === 0 ? null : { heading, start, end, list: found, chosen };
    });
  };
  const field = valuesOf(before);
  if (field !== undefined) {
    if (typed === '' && !wanted && !before.endsWith(' ')) return close();
    try {
      const { from, to } = times.peek();
      const asked = { field, n: VALUES, from, to };
      const found = await ask<Tops>('/api/v1/top', asked, abort);
      const values = found.top[0]?.values ?? [];
      const list = values.filter(({ value }) => value.startsWith(typed));
      show('values in these times, by packets', list.map(({ value, count }) => (
        { text: value, about: '', packets: count }
      )));
    } catch (error) {
      if (!isAborted(error)) close();
    }
    return;
  }
  if (typed.length < 2 && !wanted) return close();
  const language = view.peek().syntax ?? (filter.trim() === '' ? undefined : guess(before + typed));
  const words = PCAP.map(([text, about]) => ({ text, about }));
  const names = fields.value.flatMap(({ wireshark, about }) =>
    wireshark === undefined ? [] : [{ text: wireshark, about }],
  );
  const isField = typed.includes('.');
  const all = isField || language === 'wireshark' ? [...names, ...words] : [...words, ...names];
  show('words and fields', all.filter(({ text }) => text.startsWith(typed)));
}
