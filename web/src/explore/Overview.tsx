import { signal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Histogram } from '../net/types';
import { ask, locked } from '../net/server';
import { status } from '../state/session';
import { extent, setTimes, shown } from '../state/times';
import { theme } from '../state/theme';
import { type Ns, length, parse } from '../text/time';
import { colour, dots, stripes } from './hatch';

const LEFT = 46;
/** All that is kept. */
export const whole = signal<Histogram | null>(null);
let askedFor = '';

/** The outline of all that is kept; asked for again only when there is much more of it. */
async function load(): Promise<void> {
  const all = extent.peek();
  if (all === null || locked.peek()) return;
  const key = `${all.from >> 34n}-${all.to >> 36n}`;
  if (key === askedFor) return;
  askedFor = key;
  try {
    whole.value = await ask<Histogram>('/api/v1/histogram', { bins: 300 });
  } catch {
    askedFor = '';
  }
}

/** All that is kept, with the window of the timeline in it: it keeps the place. */
export function Overview() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<{ at: Ns; from: Ns; to: Ns; end: 'from' | 'to' | 'both' } | null>(null);
  const place = () => {
    const all = extent.peek();
    const element = canvas.current;
    if (all === null || !element) return null;
    const width = element.clientWidth - LEFT - 1;
    const left = (time: Ns) => LEFT + (Number(time - all.from) / Number(all.to - all.from)) * width;
    const time = (x: number) => all.from
      + BigInt(Math.round(((x - LEFT) / width) * Number(all.to - all.from)));
    return { left, time };
  };
  const draw = () => {
    const element = canvas.current;
    const to = element?.getContext('2d');
    const at = place();
    if (!element || !to || at === null) return;
    const ratio = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = element;
    element.width = width * ratio;
    element.height = height * ratio;
    to.scale(ratio, ratio);
    const found = whole.peek();
    const start = parse(found?.spans[0]?.time ?? '');
    if (found !== null && start !== undefined) {
      const most = Math.max(1, ...found.spans.map(({ packets }) => packets));
      const span = BigInt(Math.round(found.span_ns));
      to.fillStyle = colour('bar2');
      found.spans.forEach(({ packets }, n) => {
        const from = at.left(start + span * BigInt(n));
        const wide = at.left(start + span * BigInt(n + 1)) - from;
        const high = packets === 0 ? 0 : Math.max(1, (packets / most) * (height - 5));
        to.fillRect(Math.max(LEFT, from), height - high - 2, wide + 0.3, high);
      });
      for (const one of found.intervals ?? []) {
        const [a, b] = [parse(one.from), parse(one.to)];
        if (a === undefined || b === undefined) continue;
        const pattern = one.cause.startsWith('not') ? dots(to, 1) : stripes(to, 1);
        to.fillStyle = pattern ?? colour('loss-fill');
        to.fillRect(at.left(a), 2, Math.max(2, at.left(b) - at.left(a)), height - 4);
      }
    }
    const range = shown.peek();
    if (range !== null) {
      const [a, b] = [Math.max(LEFT, at.left(range.from)), Math.min(width - 1, at.left(range.to))];
      to.globalAlpha = 0.45;
      to.fillStyle = colour('lit');
      to.fillRect(a, 1, Math.max(3, b - a), height - 2);
      to.globalAlpha = 1;
      to.strokeStyle = colour('lit-line');
      to.strokeRect(a + 0.5, 1.5, Math.max(3, b - a) - 1, height - 3);
    }
  };
  useSignalEffect(() => {
    status.value;
    void load();
  });
  useSignalEffect(() => {
    shown.value;
    whole.value;
    theme.value;
    requestAnimationFrame(draw);
  });
  useEffect(() => {
    const seen = new ResizeObserver(draw);
    if (canvas.current) seen.observe(canvas.current);
    return () => seen.disconnect();
  }, []);
  const down = (event: PointerEvent): void => {
    const at = place();
    const range = shown.peek();
    if (at === null || range === null) return;
    const time = at.time(event.offsetX);
    const near = (edge: Ns) => Math.abs(at.left(edge) - event.offsetX) < 6;
    const isInside = time >= range.from && time <= range.to;
    const isSmall = at.left(range.to) - at.left(range.from) < 18;
    const end = !isSmall && near(range.from) ? 'from' : !isSmall && near(range.to) ? 'to' : 'both';
    const half = (range.to - range.from) / 2n;
    const now = isInside || end !== 'both' ? range : { from: time - half, to: time + half };
    if (now !== range) setTimes(now);
    drag.current = { at: time, ...now, end };
    canvas.current?.setPointerCapture(event.pointerId);
  };
  const moved = (event: PointerEvent): void => {
    const at = place();
    const start = drag.current;
    if (at === null || start === null || event.buttons === 0) return;
    const by = at.time(event.offsetX) - start.at;
    const from = start.end === 'to' ? start.from : start.from + by;
    const to = start.end === 'from' ? start.to : start.to + by;
    if (from < to) setTimes({ from, to }, 'replace');
  };
  const all = extent.value;
  // A role that sees a part does not know the whole.
  if (status.value?.limited) return null;
  return (
    <div class="over">
      <span class="mono dim">{all === null ? '' : length(all.to - all.from)}</span>
      <canvas ref={canvas} aria-hidden="true" onPointerDown={down} onPointerMove={moved}
        onPointerUp={() => { drag.current = null; }} />
    </div>
  );
}
