/** The packet that is open: its fields, and its bytes if the role may see them. */

import { effect, signal } from '@preact/signals';
import type { Field, Layer, OnePacket } from '../net/types';
import { Refused, ask, isAborted } from '../net/server';
import { returns } from '../net/away';
import { view } from '../state/view';

export const packet = signal<OnePacket | null>(null);
export const problem = signal<string | null>(null);
/** The field under the pointer, before that which a click keeps. */
export const hovered = signal<Field | null>(null);
export const kept = signal<Field | null>(null);

let current = new AbortController();
let asked: string | undefined;

export function watchPacket(): void {
  effect(() => {
    const { p } = view.value;
    returns.value;
    if (p === asked && packet.peek() !== null) return;
    asked = p;
    current.abort();
    if (p === undefined) {
      packet.value = null;
      return;
    }
    current = new AbortController();
    void load(p, current.signal);
  });
}

async function load(id: string, abort: AbortSignal): Promise<void> {
  try {
    const found = await ask<OnePacket>(`/api/v1/packets/${encodeURIComponent(id)}`, {}, abort);
    const name = view.peek().f;
    problem.value = null;
    hovered.value = null;
    kept.value = fieldOf(found.layers, name) ?? null;
    packet.value = found;
  } catch (error) {
    if (isAborted(error)) return;
    asked = undefined;
    problem.value = error instanceof Refused ? error.message : 'The server does not answer.';
  }
}

/** The innermost field of a name. */
export function fieldOf(layers: Layer[], name: string | undefined): Field | undefined {
  return name === undefined ? undefined
    : layers.flatMap(({ fields }) => fields).filter((field) => field.name === name).at(-1);
}

/** The field that a byte belongs to: the shortest that has it. */
export function fieldAt(layers: Layer[], at: number): Field | undefined {
  let found: Field | undefined;
  for (const { fields } of layers) {
    for (const field of fields) {
      const { offset, length = 0 } = field;
      if (offset === undefined || at < offset || at >= offset + length) continue;
      if (found === undefined || length <= (found.length ?? 0)) found = field;
    }
  }
  return found;
}
