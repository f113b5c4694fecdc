/**
 * The chart of the timeline: uPlot, with bars that are stacked here, and what is missing drawn over
 * them. Its x is the number of a span, so that times keep all of their nanoseconds.
 */

import uPlot from 'uplot';
import type { Interval } from '../net/types';
import type { Range } from '../state/times';
import { type Ns, clock, parse, parts, step } from '../text/time';
import { axisBytes, axisShort, short } from '../text/numbers';
import { type Bars, edges } from './bars';
import { colour, dots, stripes } from './hatch';

export interface Shown {
  bars: Bars;
  range: Range;
  intervals: Interval[];
  isBytes: boolean;
}

const LEFT = 46;
const BOTTOM = 20;
const LABEL_PX = 92;

export class Chart {
  private plot: uPlot;
  private shown: Shown;
  private seriesKey = '';

  constructor(
    private readonly box: HTMLElement,
    shown: Shown,
    private readonly zoomed: (range: Range) => void,
    private readonly pointed: (index: number | null, left: number) => void,
  ) {
    this.shown = shown;
    this.plot = this.make();
  }

  /** Shows other bars, or the same at other times. */
  show(shown: Shown): void {
    const isNew = shown.bars !== this.shown.bars;
    this.shown = shown;
    if (this.key() !== this.seriesKey) {
      this.plot.destroy();
      this.plot = this.make();
      return;
    }
    this.plot.batch(() => {
      if (isNew) this.plot.setData(this.data(), false);
      this.rescale();
    });
  }

  resize(): void {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (width > 0 && height > 0) this.plot.setSize({ width, height });
  }

  /** Colours have changed. */
  repaint(): void {
    this.plot.destroy();
    this.plot = this.make();
  }

  destroy(): void {
    this.plot.destroy();
  }

  /** The time at a place, in pixels from the left of the box. */
  timeAt(left: number): Ns {
    return this.time(this.plot.posToVal(left - LEFT, 'x'));
  }

  /** The place of a time. */
  leftOf(time: Ns): number {
    return LEFT + this.plot.valToPos(this.index(time), 'x');
  }

  get width(): number {
    return this.plot.over.clientWidth;
  }

  private key(): string {
    return this.shown.bars.series.map(({ colour: name }) => name).join();
  }

  private index(time: Ns): number {
    const { start, span } = this.shown.bars;
    return Number(time - start) / Number(span);
  }

  private time(index: number): Ns {
    const { start, span } = this.shown.bars;
    // The whole spans exactly, and what is left of one.
    const at = Math.floor(index);
    return start + BigInt(at) * span + BigInt(Math.round((index - at) * Number(span)));
  }

  private data(): uPlot.AlignedData {
    const { bars } = this.shown;
    const most = Math.max(1, ...bars.totals);
    const least = most / Math.max(1, this.box.clientHeight - BOTTOM - 8);
    // What is there is at least a pixel high.
    const seen = (edge: number[]) => edge.map((value) => (value > 0 ? Math.max(value, least) : 0));
    const middles = bars.totals.map((_, at) => at + 0.5);
    return [middles, ...edges(bars).map(({ edge }) => seen(edge))];
  }

  private rescale(): void {
    const { range } = this.shown;
    const [min, max] = [this.index(range.from), this.index(range.to)];
    this.plot.setScale('x', { min, max: max > min ? max : min + 1 });
    const first = Math.max(0, Math.floor(min));
    const seen = this.shown.bars.totals.slice(first, Math.ceil(max));
    this.plot.setScale('y', { min: 0, max: nice(Math.max(1, ...seen)) });
  }

  private make(): uPlot {
    this.seriesKey = this.key();
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const paths = uPlot.paths.bars?.({ size: [1, 64], gap: 1, align: 0 });
    const options: uPlot.Options = {
      width: Math.max(50, this.box.clientWidth),
      height: Math.max(40, this.box.clientHeight),
      padding: [6, 14, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, auto: false, range: (_, min, max) => [min, max] },
        y: { auto: false, range: (_, min, max) => [min, max] } },
      cursor: { y: false, points: { show: false }, drag: { setScale: false, x: true, y: false, dist: 4 },
        bind: { dblclick: () => null } },
      axes: [
        {
          stroke: colour('ink3'), font, size: BOTTOM, gap: 3,
          grid: { show: false }, ticks: { show: false },
          splits: (plot) => this.ticks(plot),
          values: (_, at) => at.map((index) => this.label(index)),
        },
        {
          stroke: colour('ink3'), font, size: LEFT, gap: 5,
          grid: { stroke: colour('line'), width: 1 }, ticks: { show: false },
          splits: (plot) => {
            const max = plot.scales.y?.max ?? 1;
            return [0, max / 2, max];
          },
          values: (_, at) => at.map((v) => (v === 0 ? '0' : this.shown.isBytes ? axisBytes(v) : axisShort(v))),
        },
      ],
      series: [
        {},
        ...edges(this.shown.bars).map(({ colour: name }): uPlot.Series => ({
          fill: colour(name), width: 0, points: { show: false }, ...(paths ? { paths } : {}),
        })),
      ],
      hooks: {
        draw: [(plot) => this.drawMissing(plot)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width < 3) return;
          const [from, to] = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')];
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.zoomed({ from: this.time(from), to: this.time(to) });
        }],
        setCursor: [(plot) => {
          const { left } = plot.cursor;
          if (left === undefined || left === null || left < 0) this.pointed(null, 0);
          else this.pointed(Math.floor(plot.posToVal(left, 'x')), left + LEFT);
        }],
      },
    };
    const plot = new uPlot(options, [[], ...edges(this.shown.bars).map(() => [])], this.box);
    this.plot = plot;
    plot.batch(() => {
      plot.setData(this.data(), false);
      this.rescale();
    });
    // The box as a whole is what has the keyboard.
    plot.root.setAttribute('aria-hidden', 'true');
    return plot;
  }

  private ticks(plot: uPlot): number[] {
    const { range, bars } = this.shown;
    const over = range.to - range.from;
    const by = step(over, Math.max(2, Math.floor(plot.over.clientWidth / LABEL_PX)));
    const found: number[] = [];
    for (let at = (range.from / by + (range.from % by === 0n ? 0n : 1n)) * by; at <= range.to; at += by) {
      found.push(Number(at - bars.start) / Number(bars.span));
      if (found.length > 60) break;
    }
    return found;
  }

  private label(index: number): string {
    const { range } = this.shown;
    const by = step(range.to - range.from, Math.max(2, Math.floor(this.width / LABEL_PX)));
    const time = this.time(index);
    // What a fraction of a span has lost.
    const exact = ((time + by / 2n) / by) * by;
    return by >= 86_400_000_000_000n ? parts(exact).date.slice(5) : clock(exact, by);
  }

  private drawMissing(plot: uPlot): void {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.font = `600 ${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    for (const one of this.shown.intervals) {
      const [from, to] = [parse(one.from), parse(one.to)];
      if (from === undefined || to === undefined) continue;
      const a = Math.max(left, plot.valToPos(this.index(from), 'x', true));
      const b = Math.min(left + width, plot.valToPos(this.index(to), 'x', true));
      if (b < left || a > left + width) continue;
      const wide = Math.max(2 * ratio, b - a);
      const isGap = one.cause === 'not-recorded' || one.cause === 'not_recorded';
      ctx.fillStyle = (isGap ? dots(ctx, ratio) : stripes(ctx, ratio)) ?? colour('loss-fill');
      ctx.fillRect(a, top, wide, height);
      ctx.strokeStyle = colour(isGap ? 'ctl' : 'loss-fill');
      ctx.lineWidth = ratio;
      ctx.setLineDash(isGap ? [3 * ratio, 2 * ratio] : []);
      ctx.strokeRect(a, top + 0.5, wide, height - 1);
      ctx.fillStyle = colour(isGap ? 'ink3' : 'loss');
      const text = isGap ? 'not recorded'
        : one.packets === undefined ? 'lost' : `${short(one.packets)} lost`;
      ctx.fillText(text, a + wide + 4 * ratio, top + 10 * ratio);
    }
    ctx.restore();
  }
}

/** The next number that is round enough for an axis. */
function nice(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most));
  const first = [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= most) ?? 10;
  return first * power;
}
