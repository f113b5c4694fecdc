import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

/** What is open above the page, by its name. */
export const open = signal<string | null>(null);
let before: Element | null = null;

export function show(name: string | null): void {
  if (name !== null && open.peek() === null) before = document.activeElement;
  open.value = name;
  if (name === null && before instanceof HTMLElement) before.focus();
}

/** A box above the page. Tab stays in it, Esc and a click beside it close it. */
export function Dialog({ label, wide, children }: {
  label: string;
  wide?: boolean;
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  // Before anything is painted: what is typed at once is not lost.
  useLayoutEffect(() => {
    const first = box.current?.querySelector<HTMLElement>('[data-first], input, button');
    (first ?? box.current)?.focus();
  }, []);
  const keys = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      show(null);
    }
    if (event.key !== 'Tab' || !box.current) return;
    const all = [...box.current.querySelectorAll<HTMLElement>('button, input, select, a[href]')];
    const [first, last] = [all[0], all.at(-1)];
    if (event.shiftKey && document.activeElement === first) last?.focus();
    else if (!event.shiftKey && document.activeElement === last) first?.focus();
    else return;
    event.preventDefault();
  };
  return (
    <div class="veil" onMouseDown={(event) => { if (event.target === event.currentTarget) show(null); }}>
      <div
        class={`dlg${wide ? ' wide' : ''}`} role="dialog" aria-modal="true" aria-label={label}
        ref={box} tabIndex={-1} onKeyDown={keys}
      >{children}</div>
    </div>
  );
}
