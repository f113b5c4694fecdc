/**
 * The packets of an answer by their place in it, of which only those in view are fetched.
 *
 * The server gives packets from a time on; it does not count to row number N. What leads from a
 * place to a time are anchors: times of which it is known how many packets are before them. The
 * histogram of the timeline has some; where they are too far apart, one of a part is asked for.
 */

import { signal } from '@preact/signals';
import type { Histogram, Packet } from '../net/types';
import { packets } from '../net/lines';
import { type Params, ask, isAborted } from '../net/server';

interface Anchor {
  row: number;
  /** No packet before this time has this row or a later one. */
  time: string;
}

const AT_ONCE = 200;
/** Rows that are fetched and thrown away, at most, to reach a place. */
const SKIP_MAX = 400;
const FETCH_MAX = 1000;
const KEEP_MAX = 12_000;
const REFINE_BINS = 500;
const REFINE_MAX = 8;

export class Rows {
  /** Grows when rows have come. */
  readonly version = signal(0);
  private readonly found = new Map<number, Packet>();
  private anchors: Anchor[] = [];
  private busy = new Set<number>();
  private abort = new AbortController();

  constructor(readonly params: Params, private many: number) {
    this.anchors.push({ row: 0, time: String(params.from ?? '') });
  }

  get total(): number {
    return this.many;
  }

  /** More packets have come, at the end. */
  grow(total: number): void {
    if (total <= this.many) return;
    this.many = total;
    this.version.value += 1;
  }

  get(row: number): Packet | undefined {
    return this.found.get(row);
  }

  stop(): void {
    this.abort.abort();
  }

  /** Adds what a histogram of the same question tells. */
  learn(histogram: Histogram): void {
    let row = this.before(histogram);
    if (row === undefined) return;
    for (const { time, packets: count } of histogram.spans) {
      if (row > 0 && count > 0) this.anchor({ row, time });
      row += count;
    }
  }

  /** How many packets are before the first span of a histogram. */
  private before(histogram: Histogram): number | undefined {
    return histogram.spans.reduce((sum, span) => sum + span.packets, 0) === this.total ? 0 : undefined;
  }

  private anchor(anchor: Anchor): void {
    const at = this.after(anchor.row);
    if (this.anchors[at - 1]?.row === anchor.row) return;
    this.anchors.splice(at, 0, anchor);
  }

  /** The place in the list of anchors behind those at or before a row. */
  private after(row: number): number {
    let [low, high] = [0, this.anchors.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.anchors[middle]?.row ?? 0) <= row) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Fetches what is missing of the rows from `first` to `last`. */
  async need(first: number, last: number): Promise<void> {
    let row = Math.max(0, first);
    const end = Math.min(last, this.total - 1);
    while (row <= end && this.found.has(row)) row += 1;
    const block = Math.floor(row / 50);
    if (row > end || this.busy.has(block)) return;
    this.busy.add(block);
    try {
      const anchor = await this.near(row);
      if (anchor !== undefined) await this.fetch(anchor, Math.max(end, row + AT_ONCE - 60));
    } catch (error) {
      if (!isAborted(error)) setTimeout(() => { this.version.value += 1; }, 2000);
    } finally {
      this.busy.delete(block);
    }
    if (this.found.has(row)) this.version.value += 1;
  }

  /** The time before which a row is not, as near to it as need be. */
  private async near(row: number): Promise<Anchor | undefined> {
    for (let tries = 0; tries < REFINE_MAX; tries += 1) {
      const at = this.after(row);
      const [below, above] = [this.anchors[at - 1], this.anchors[at]];
      if (below === undefined || row - below.row <= SKIP_MAX) return below;
      const many = await this.refine(below, above);
      if (!many) return below;
    }
    return this.anchors[this.after(row) - 1];
  }

  /** Asks how the packets between two anchors lie in time. Whether that has told anything. */
  private async refine(below: Anchor, above: Anchor | undefined): Promise<boolean> {
    const asked = { ...this.params, from: below.time, to: above?.time ?? this.params.to };
    const more = { ...asked, bins: REFINE_BINS };
    const found = await ask<Histogram>('/api/v1/histogram', more, this.abort.signal);
    let row = below.row;
    const many = this.anchors.length;
    found.spans.forEach(({ time, packets: count }, n) => {
      // The first span may start before the first time.
      if (n > 0 && count > 0) this.anchor({ row, time });
      row += count;
    });
    return this.anchors.length > many;
  }

  private async fetch(anchor: Anchor, last: number): Promise<void> {
    const limit = Math.min(FETCH_MAX, last - anchor.row + 1);
    const asked = { ...this.params, from: anchor.time || undefined, limit_packets: limit };
    const [found] = await packets(asked, this.abort.signal);
    if (this.found.size > KEEP_MAX) this.found.clear();
    found.forEach((packet, n) => {
      this.found.set(anchor.row + n, packet);
      const before = found[n - 1];
      if (n % 50 === 49 && before !== undefined && before.time !== packet.time) {
        this.anchor({ row: anchor.row + n, time: packet.time });
      }
    });
    const end = found.at(-1);
    const one = found.findIndex((packet) => packet.time === end?.time);
    if (end !== undefined && one > 0) this.anchor({ row: anchor.row + one, time: end.time });
  }

  /** The row of the first packet from a time on. */
  async rowOf(time: string): Promise<number> {
    if (time <= String(this.params.from ?? '')) return 0;
    const to = this.params.to === undefined || String(this.params.to) > time ? time : this.params.to;
    const { count } = await ask<{ count: number }>('/api/v1/count', { ...this.params, to },
      this.abort.signal);
    if (count > 0 && count < this.total) this.anchor({ row: count, time });
    return Math.min(count, Math.max(0, this.total - 1));
  }
}
