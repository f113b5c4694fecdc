import { effect, signal, useSignalEffect } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Choose } from '../parts/Choose';
import { show } from '../parts/Dialog';
import { Icon } from '../parts/Icon';
import { say } from '../parts/announce';
import { bins, count, histogram } from '../state/answers';
import { fields, status } from '../state/session';
import { type Range, setTimes, showAll, shown, zoom } from '../state/times';
import { change, view } from '../state/view';
import { theme } from '../state/theme';
import { SECOND, clock, length, zone } from '../text/time';
import { bytes, counted, whole } from '../text/numbers';
import { type Bars, bars } from './bars';
import { Chart } from './chart';
import { Overview } from './Overview';
import { Tip } from './Tip';

/** The bar under the pointer or the keyboard's cursor, and where it is. */
export const pointed = signal<{ index: number; left: number } | null>(null);

const STACKS = ['proto', 'src', 'dst', 'port', 'port.dst', 'iface', 'vlan', 'tcp.flags', 'ip.ttl'];
const BAR_PX = 8;
const SETTLE_MS = 120;

/** What the chart shows: the times of the address, or what there is. */
function rangeOf(found: Bars, asked: Range | null): Range {
  if (asked !== null) return asked;
  return { from: found.start, to: found.start + found.span * BigInt(Math.max(1, found.totals.length)) };
}

/** Packets or bytes over time, stacked; drag, wheel and keys change the times. */
export function Timeline() {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<Chart | null>(null);
  const { by, stack } = view.value;
  const found = histogram.value.value;
  const now = useMemo(() => bars(found), [found]);
  // While somebody turns the wheel, the old bars are scaled at once.
  const moving = useRef<Range | null>(null);
  const timer = useRef(0);
  const pressed = useRef(0);

  const state = () => ({
    bars: now, range: moving.current ?? rangeOf(now, shown.peek()),
    intervals: histogram.peek().value?.intervals ?? count.peek().value?.intervals ?? [],
    isBytes: found?.by === 'bytes',
  });
  useEffect(() => {
    if (!box.current || now.totals.length === 0) return;
    if (chart.current) {
      chart.current.show(state());
    } else {
      chart.current = new Chart(box.current, state(), (range) => setTimes(range),
        (index, left) => { pointed.value = index === null ? null : { index, left }; });
    }
  }, [now]);
  useSignalEffect(() => {
    shown.value;
    moving.current = null;
    chart.current?.show(state());
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const seen = new ResizeObserver(() => {
      chart.current?.resize();
      bins.value = Math.max(20, Math.min(400, Math.floor((element.clientWidth - 46) / BAR_PX)));
    });
    seen.observe(element);
    const stop = effect(() => {
      theme.value;
      zone.value;
      requestAnimationFrame(() => chart.current?.repaint());
    });
    const wheel = (event: WheelEvent) => {
      if (!chart.current) return;
      event.preventDefault();
      const range = moving.current ?? rangeOf(now, shown.peek());
      const at = chart.current.timeAt(event.clientX - element.getBoundingClientRect().left);
      const turn = event.deltaY !== 0 ? event.deltaY : event.deltaX;
      moving.current = event.shiftKey ? moved(range, Math.sign(turn) * 0.08)
        : zoomed(range, turn > 0 ? 1.2 : 1 / 1.2, at);
      settle();
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => {
      seen.disconnect();
      stop();
      element.removeEventListener('wheel', wheel);
    };
  }, [now]);
  useEffect(() => () => chart.current?.destroy(), []);

  const settle = (): void => {
    requestAnimationFrame(() => {
      chart.current?.show(state());
    });
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      if (moving.current) setTimes(moving.current);
    }, SETTLE_MS);
  };
  const cursor = (by: number): void => {
    const range = rangeOf(now, shown.peek());
    const at = pointed.peek()?.index ?? Math.floor(Number(range.from - now.start) / Number(now.span)) - 1;
    const index = Math.max(0, Math.min(now.totals.length - 1, at + by));
    const left = chart.current?.leftOf(now.start + now.span * BigInt(index) + now.span / 2n) ?? 0;
    pointed.value = { index, left };
    const total = now.totals[index] ?? 0;
    say(`${clock(now.start + now.span * BigInt(index), now.span)}, ${found?.by === 'bytes'
      ? bytes(total) : counted(total, 'packet')}`);
  };
  const zoomToBar = (index: number): void => {
    const from = now.start + now.span * BigInt(index);
    setTimes({ from, to: from + now.span });
  };
  const keys = (event: KeyboardEvent): void => {
    const act = {
      ArrowLeft: () => cursor(-1), ArrowRight: () => cursor(1), Home: () => cursor(-1e9),
      End: () => cursor(1e9),
      Enter: () => { if (pointed.peek()) zoomToBar(pointed.peek()?.index ?? 0); },
    }[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  const highest = now.totals.indexOf(Math.max(...now.totals));
  const label = now.totals.length === 0 ? 'Packets over time' : `Packets over time, ${length(now.span)} a bar, `
    + `highest ${whole(now.totals[highest] ?? 0)} at ${clock(now.start + now.span * BigInt(highest), SECOND)}, `
    + `${counted(state().intervals.length, 'interval')} with something missing`;
  const point = pointed.value;
  // Several places tell no values apart over time.
  const isOne = (status.value?.nodes.length ?? 0) === 0;
  return (
    <section class={`time${histogram.value.busy ? ' busy' : ''}`} aria-label="Timeline">
      <div class="tl-h">
        <Choose label="Packets or bytes" small value={by} set={(to) => change({ by: to }, 'push')}
          of={[['packets', 'packets'], ['bytes', 'bytes']]} />
        {isOne && <select class="btn sm" aria-label="Stacked by" value={stack}
          onChange={(event) => change({ stack: event.currentTarget.value }, 'push')}>
          {[...new Set([...STACKS, stack])].filter((field) => field === stack
            || fields.value.some((one) => one.field === field)).map((field) => (
            <option value={field}>by {field === 'proto' ? 'protocol' : field}</option>
          ))}
        </select>}
        <span class="leg">
          {now.series.filter(({ counts }) => counts.some((n) => n > 0)).map(({ name, colour }) => (
            <span><i class={`k-${colour}`} />{name === '' ? '(none)' : name}</span>
          ))}
          {state().intervals.length > 0 && <span><i class="sw" />missing</span>}
        </span>
        <span class="grow" />
        <span class="dim opt">{now.totals.length === 0 ? '' : `${length(now.span)} a bar`}</span>
        <button class="link opt" onClick={() => show('bars')}>Table</button>
        <span class="seg sm" role="group" aria-label="Zoom">
          <button aria-label="Zoom out (-)" onClick={() => zoom(2)}><Icon name="minus" /></button>
          <button aria-label="Zoom in (+)" onClick={() => zoom(0.5)}><Icon name="plus" /></button>
          <button aria-label="All that is kept (0)" onClick={showAll}>all</button>
        </span>
      </div>
      <div
        class="chart" id="timeline" ref={box} tabIndex={0} role="application"
        aria-roledescription="timeline" aria-label={label} onKeyDown={keys}
        onPointerDown={(event) => { pressed.current = event.clientX; }}
        onClick={(event) => {
          // What was a drag has zoomed already.
          if (point && Math.abs(event.clientX - pressed.current) < 4) zoomToBar(point.index);
        }}
        onBlur={() => { pointed.value = null; }}
      >
        {point !== null && now.totals[point.index] !== undefined && (
          <Tip bars={now} index={point.index} left={point.left} isBytes={found?.by === 'bytes'}
            width={box.current?.clientWidth ?? 0} />
        )}
      </div>
      <Overview />
    </section>
  );
}

function zoomed(range: Range, by: number, at: bigint): Range {
  const scaled = (ns: bigint) => BigInt(Math.round(Number(ns) * by));
  const to = { from: at - scaled(at - range.from), to: at + scaled(range.to - at) };
  return to.to - to.from < 10n ? range : to;
}

function moved(range: Range, share: number): Range {
  const by = BigInt(Math.round(Number(range.to - range.from) * share));
  return { from: range.from + by, to: range.to + by };
}

