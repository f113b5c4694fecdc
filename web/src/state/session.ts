/** Who asks, what is served, and its recorder; asked for again every few seconds while in view. */

import { computed, signal } from '@preact/signals';
import type { FieldLine, Recorder, Status } from '../net/types';
import { ask, isAborted } from '../net/server';

export const status = signal<Status | null>(null);
export const fields = signal<FieldLine[]>([]);

/** Fills of ring and queue, and rates, as this page has seen them: [time, packets/s, ring, queue]. */
export const seen = signal<[number, number, number, number][]>([]);
const SEEN_MAX = 1800;

/** How often it is asked while something is recorded, and how many times less often otherwise. */
const EVERY_MS = 2000;
const IDLE = 3;

export const mayExtract = computed(() => {
  const may = status.value?.may;
  return may === 'extract' || may === 'admin';
});

export const isRecording = computed(() => status.value?.recorder?.running === true);

export async function refresh(): Promise<void> {
  try {
    const found = await ask<Status>('/api/v1/status', {});
    status.value = found;
    const { recorder } = found;
    if (recorder?.running === true) {
      const most = (of: (source: Recorder['sources'][number]) => number | undefined) =>
        Math.max(0, ...recorder.sources.map((source) => of(source) ?? 0));
      const now: [number, number, number, number] = [
        Date.now(), recorder.packets_per_second, most((s) => s.ring_fill), most((s) => s.queue_fill),
      ];
      seen.value = [...seen.peek().slice(-SEEN_MAX), now];
    }
    if (fields.peek().length === 0) fields.value = await ask<FieldLine[]>('/api/v1/fields', {});
  } catch (error) {
    // Who is locked out or away is told by what they ask.
    if (!isAborted(error) && !(error instanceof Error)) throw error;
  }
}

export function watch(): void {
  void refresh();
  let turn = 0;
  setInterval(() => {
    turn += 1;
    if (!document.hidden && (isRecording.peek() || turn % IDLE === 0)) void refresh();
  }, EVERY_MS);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void refresh();
  });
}
