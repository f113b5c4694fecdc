import { signal, useSignalEffect } from '@preact/signals';
import type { ComponentChild } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Count, Interval, Packet } from '../net/types';
import { type Params, ask } from '../net/server';
import { answered, count, histogram } from '../state/answers';
import { change, view } from '../state/view';
import { absolute, now as clock } from '../state/times';
import { format, zone } from '../text/time';
import { whole } from '../text/numbers';
import { Empty } from './Empty';
import { lookedAt, newest } from './follow';
import { PacketRow } from './PacketRow';
import { Rows } from './rows';
import { current, cursor, openPacket } from './selection';
import { showValueMenu } from './ValueMenu';
import { type Handle, VirtualRows } from './VirtualRows';

/** The list, for keys of the page that move in it. */
export const list = signal<Handle | null>(null);
const inView = signal<[number, number]>([0, 0]);

/** Rows that are kept as they were drawn. */
const DRAWN_MAX = 400;

/** The packets of the answer, in order of time. */
export function Packets() {
  const { number, params } = answered.value;
  const { live, p } = view.value;
  const found = count.value.number === number ? count.value.value?.count ?? 0 : 0;
  // Live, the times move on; the list keeps its start, or rows would move under the pointer.
  const start = useMemo(() => (live ? startOf(params) : params), [live, JSON.stringify(params)]);
  const rows = useMemo(() => new Rows(start, found),
    [JSON.stringify(start), live ? 0 : found]);
  const total = rows.total;
  useEffect(() => {
    if (!live) return;
    const abort = new AbortController();
    ask<Count>('/api/v1/count', start, abort.signal).then((now) => rows.grow(now.count))
      .catch(() => undefined);
    return () => abort.abort();
  }, [live, rows, number]);
  const handle = useRef<Handle>(null);
  const drawn = useRef(new Map<string, { packet: Packet | undefined; row: ComponentChild }>());
  const chosen = useRef<(n: number, open: boolean) => void>(() => undefined);
  const place = useRef<string | undefined>(view.peek().at);
  rows.version.value;

  useEffect(() => {
    list.value = handle.current;
    const found = histogram.peek();
    if (found.number === number && found.value !== null) rows.learn(found.value);
    const { at } = view.peek();
    if (at !== undefined && total > 0) {
      void rows.rowOf(at).then((row) => handle.current?.reveal(row, true)).catch(() => undefined);
    } else {
      handle.current?.reveal(0, true);
      cursor.value = -1;
    }
    return () => rows.stop();
  }, [rows]);
  useSignalEffect(() => {
    const found = histogram.value;
    if (found.number === answered.peek().number && found.value !== null) rows.learn(found.value);
  });
  // Back leaves the list where it was.
  useSignalEffect(() => {
    const { at } = view.value;
    if (at === place.current) return;
    place.current = at;
    if (at !== undefined) {
      void rows.rowOf(at).then((row) => handle.current?.reveal(row, true)).catch(() => undefined);
    }
  });

  const seen = (first: number, last: number): void => {
    inView.value = [first, last];
    void rows.need(first - 20, last + 40).then(() => remember(first));
  };
  const remember = (first: number): void => {
    const packet = rows.get(first);
    const at = first === 0 ? undefined : packet?.time;
    if ((first > 0 && packet === undefined) || at === view.peek().at || live) return;
    place.current = at;
    change({ at }, 'replace');
  };
  const select = (n: number, open: boolean): void => {
    const row = Math.max(0, Math.min(total - 1, n));
    cursor.value = row;
    handle.current?.reveal(row);
    const show = () => {
      const packet = rows.get(row);
      if (packet === undefined || cursor.peek() !== row) return;
      current.value = packet;
      if (open || view.peek().p !== undefined) openPacket(packet);
    };
    if (rows.get(row)) show();
    else void rows.need(row, row + 20).then(show);
  };
  chosen.current = select;
  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = handle.current?.rows() ?? 20;
    const now = cursor.peek();
    const act = {
      ArrowDown: () => select(now + 1, false), j: () => select(now + 1, false),
      ArrowUp: () => select(now - 1, false), k: () => select(now - 1, false),
      PageDown: () => select(now + page, false), PageUp: () => select(now - page, false),
      ' ': () => select(now + (event.shiftKey ? -page : page), false),
      Home: () => select(0, false), End: () => select(total - 1, false),
      Enter: () => select(now < 0 ? 0 : now, true),
      ContextMenu: () => showMenu(document.getElementById(`row-${now}`)),
      F10: () => { if (event.shiftKey) showMenu(document.getElementById(`row-${now}`)); },
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  const showMenu = (element: Element | null, x?: number, y?: number): void => {
    const row = element?.closest<HTMLElement>('.vr');
    if (!row) return;
    const cell = element?.closest<HTMLElement>('[data-term]') ?? row.querySelector<HTMLElement>('[data-term]');
    const n = Number(row.id.slice(4));
    const box = (cell ?? row).getBoundingClientRect();
    const packet = rows.get(n);
    if (packet && cell) {
      showValueMenu({
        field: cell.dataset.term ?? '', value: cell.dataset.value ?? '', row: lineOf(packet),
        x: x ?? box.left, y: y ?? box.bottom,
      });
    }
  };
  if (total === 0 && !count.value.busy && count.value.value !== null) return <Empty />;
  return (
    <>
      <div class="tw" onContextMenu={(event) => {
        event.preventDefault();
        showMenu(event.target as Element, event.clientX, event.clientY);
      }}>
        <VirtualRows
          total={total} label="Packets" handle={handle} columns="of-packets" keys={keys} seen={seen}
          active={cursor.value < 0 ? undefined : `row-${cursor.value}`}
          head={<>
            <span role="columnheader">Time, {zone.value}</span>
            <span role="columnheader">Source</span>
            <span role="columnheader">Destination</span>
            <span role="columnheader" class="h2">Proto</span>
            <span role="columnheader" class="num">Length</span>
            <span role="columnheader" class="h2">Header</span>
          </>}
          row={(n) => {
            const packet = rows.get(n);
            const isSelected = n === cursor.value || (p !== undefined && packet?.id === p);
            // A row that is as it was is not looked at again.
            const missing = between(rows.get(n - 1), packet);
            const key = `${n} ${isSelected} ${zone.value} ${missing.length}`;
            const before = drawn.current.get(key);
            if (before !== undefined && before.packet === packet) return before.row;
            const row = (
              <PacketRow key={n} n={n} packet={packet} missing={missing} isSelected={isSelected}
                open={(_, at) => chosen.current(at, true)} />
            );
            if (drawn.current.size > DRAWN_MAX) drawn.current.clear();
            drawn.current.set(key, { packet, row });
            return row;
          }}
        />
      </div>
      <div class="foot">
        <InView total={total} />
        <span class="opt">in order of time</span>
        {live && newest.value > 0 && (
          <button class="link" onClick={() => {
            lookedAt();
            handle.current?.reveal(total - 1);
          }}>
            {whole(newest.value)} new
          </button>
        )}
        <span class="grow" />
        <span class="opt"><kbd>J</kbd> <kbd>K</kbd> move</span>
        <span class="opt"><kbd>Enter</kbd> open</span>
        <span class="opt"><kbd>F</kbd> conversation</span>
      </div>
    </>
  );
}

/** Which rows are in view: by itself, as it changes with every one of them. */
function InView({ total }: { total: number }) {
  const [first, last] = inView.value;
  return <span>rows {whole(total === 0 ? 0 : first + 1)} – {whole(Math.min(total, last + 1))}</span>;
}

/** What is missing from the time between two packets. */
function between(before: Packet | undefined, packet: Packet | undefined): Interval[] {
  const all = count.peek().value?.intervals;
  if (all === undefined || before === undefined || packet === undefined) return [];
  // Times of the server are all of one length, so that text is in their order.
  return all.filter(({ from, to }) => from > before.time && from <= packet.time && to > before.time);
}

/** The same question with a start that does not move. */
function startOf(params: Params): Params {
  const from = absolute(String(params.from ?? ''), clock());
  return from === undefined ? params : { ...params, from: format(from) };
}

/** A row as text, to copy. */
export function lineOf(packet: Packet): string {
  const end = (address: string, port?: number) => (port === undefined ? address : `${address}.${port}`);
  return [
    packet.time, end(packet.src, packet.src_port), '>', end(packet.dst, packet.dst_port),
    packet.protocol, packet.flags ? `[${packet.flags}]` : '', `${packet.length} bytes`,
  ].filter((text) => text !== '').join(' ');
}
