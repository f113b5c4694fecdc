/** A histogram as stacked bars: for each series its upper edge in every span. */

import type { Histogram } from '../net/types';
import { type Ns, parse } from '../text/time';
import { CLASSES, NAMES, classOf } from './protocols';

export interface Series {
  name: string;
  /** The name of its colour. */
  colour: string;
  counts: number[];
}

export interface Bars {
  start: Ns;
  span: Ns;
  /** Of each span, all that it has. */
  totals: number[];
  /** From the bottom up. */
  series: Series[];
}

export const NONE: Bars = { start: 0n, span: 1n, totals: [], series: [] };

export function bars(found: Histogram | null): Bars {
  const first = found?.spans[0];
  if (found === null || first === undefined) return NONE;
  const totals = found.spans.map((span) => (found.by === 'bytes' ? span.bytes ?? 0 : span.packets));
  return {
    start: parse(first.time) ?? 0n,
    span: BigInt(Math.round(found.span_ns)),
    totals,
    series: stacked(found, totals),
  };
}

function stacked({ stack }: Histogram, totals: number[]): Series[] {
  if (stack === undefined) return [{ name: 'all', colour: 'tcp', counts: totals }];
  const zero = () => totals.map(() => 0);
  if (stack.field === 'proto') {
    const series = CLASSES.map((one) => ({ name: NAMES[one], colour: one, counts: zero() }));
    const left = [...totals];
    stack.values.forEach((value, n) => {
      const counts = series[CLASSES.indexOf(classOf(value))]?.counts ?? [];
      stack.counts[n]?.forEach((count, at) => {
        counts[at] = (counts[at] ?? 0) + count;
        left[at] = (left[at] ?? 0) - count;
      });
    });
    const other = series[CLASSES.length - 1]?.counts ?? [];
    left.forEach((count, at) => { other[at] = (other[at] ?? 0) + count; });
    return series;
  }
  // Five values in order of size; the sixth colour is for the rest.
  const left = [...totals];
  const series = stack.values.slice(0, 5).map((name, n) => {
    const counts = stack.counts[n] ?? zero();
    counts.forEach((count, at) => { left[at] = (left[at] ?? 0) - count; });
    return { name, colour: CLASSES[n] ?? 'oth', counts };
  });
  return [...series, { name: 'other', colour: 'oth', counts: left }];
}

/** Upper edges, the highest series first, so that lower ones are drawn over it. */
export function edges({ series, totals }: Bars): { colour: string; edge: number[] }[] {
  const sum = totals.map(() => 0);
  const found = series.map(({ colour, counts }) => ({
    colour,
    edge: counts.map((count, at) => {
      sum[at] = (sum[at] ?? 0) + count;
      return sum[at] ?? 0;
    }),
  }));
  return found.reverse();
}
