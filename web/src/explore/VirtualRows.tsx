import type { ComponentChildren } from 'preact';
import { useEffect, useImperativeHandle, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Ref } from 'preact';

export const ROW = 22;
/** Browsers have no elements that are much higher: of longer lists, the place is scaled. */
const HEIGHT_MAX = 8_000_000;
const BEYOND = 10;

export interface Handle {
  /** Brings a row into view; `align` puts it first. */
  reveal(row: number, align?: boolean): void;
  focus(): void;
  rows(): number;
}

/** A list of which only the rows in view are in the page, however long it is. */
export function VirtualRows({ total, head, row, seen, keys, label, handle, columns, active }: {
  total: number;
  head: ComponentChildren;
  /** The cells of a row. */
  row: (n: number) => ComponentChildren;
  /** Which rows are in view. */
  seen: (first: number, last: number) => void;
  keys: (event: KeyboardEvent) => void;
  label: string;
  handle: Ref<Handle>;
  columns: string;
  /** The id of the row that has the cursor. */
  active: string | undefined;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [fits, setFits] = useState(20);
  const own = useRef(0);
  const place = useRef(0);
  const top = useRef(0);

  const height = Math.min(HEIGHT_MAX, total * ROW);
  const last = Math.max(0, total - fits);
  const isScaled = total * ROW > HEIGHT_MAX;

  const scrollOf = (n: number, within: number): number =>
    (isScaled ? (last === 0 ? 0 : (n / last) * (height - fits * ROW)) : n * ROW) + within;
  const go = (to: number): void => {
    const n = Math.max(0, Math.min(last, Math.round(to)));
    place.current = n;
    const element = box.current;
    if (element) {
      own.current = Math.round(scrollOf(n, 0));
      element.scrollTop = own.current;
      top.current = element.scrollTop;
    }
    setFirst(n);
  };
  useImperativeHandle(handle, () => ({
    reveal(n, align = false) {
      const now = place.current;
      if (align) go(n);
      else if (n < now) go(n);
      else if (n >= now + fits) go(n - fits + 1);
    },
    focus() { box.current?.focus(); },
    rows() { return fits; },
  }));
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const watch = new ResizeObserver(() => {
      setFits(Math.max(1, Math.floor((element.clientHeight - 25) / ROW)));
    });
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (place.current > last) go(last);
  }, [total, fits]);
  useEffect(() => seen(first, Math.min(total - 1, first + fits)), [first, fits, total]);

  const scrolled = (): void => {
    const element = box.current;
    if (!element) return;
    const now = element.scrollTop;
    if (Math.abs(now - top.current) < 0.5) return;
    const by = now - top.current;
    top.current = now;
    if (!isScaled) {
      place.current = Math.min(last, Math.floor(now / ROW));
    } else if (Math.abs(by) < 1200) {
      // Wheel and keys move by rows, whatever a pixel of the bar stands for.
      place.current = Math.max(0, Math.min(last, place.current + Math.round(by / ROW)));
      const exact = scrollOf(place.current, 0);
      if (Math.abs(exact - now) > 1) {
        element.scrollTop = exact;
        top.current = element.scrollTop;
      }
    } else {
      place.current = Math.round((now / Math.max(1, height - fits * ROW)) * last);
    }
    setFirst(place.current);
  };

  const start = Math.max(0, first - BEYOND);
  const end = Math.min(total, first + fits + BEYOND + 1);
  const offset = (isScaled ? scrollOf(first, 0) - (first - start) * ROW : start * ROW);
  const rows = [];
  for (let n = start; n < end; n += 1) rows.push(row(n));
  return (
    <div
      class={`vlist ${columns}`} role="grid" aria-label={label} aria-rowcount={total + 1}
      aria-activedescendant={active} tabIndex={0} ref={box} onScroll={scrolled} onKeyDown={keys}
    >
      <div class="vhead" role="row" aria-rowindex={1}>{head}</div>
      <div class="vspace" role="presentation" style={{ height: `${height}px` }}>
        <div class="vrows" role="presentation" style={{ transform: `translateY(${Math.max(0, offset)}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}
