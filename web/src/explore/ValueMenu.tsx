import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { add, language, term } from '../ask/terms';
import { copy } from '../parts/announce';

interface Value {
  field: string;
  value: string;
  row: string;
  x: number;
  y: number;
}

const menu = signal<Value | null>(null);
let before: Element | null = null;

export function showValueMenu(value: Value): void {
  before = document.activeElement;
  menu.value = value;
}

function close(): void {
  menu.value = null;
  if (before instanceof HTMLElement) before.focus();
}

/** What can be done with a value of a list. */
export function ValueMenu() {
  const box = useRef<HTMLDivElement>(null);
  const open = menu.value;
  useEffect(() => {
    if (open === null) return;
    box.current?.querySelector('button')?.focus();
    const outside = (event: MouseEvent) => {
      if (!box.current?.contains(event.target as Node)) close();
    };
    document.addEventListener('mousedown', outside);
    return () => document.removeEventListener('mousedown', outside);
  }, [open]);
  if (open === null) return null;
  const added = term(open.field, open.value);
  const items: [string, () => void][] = [
    ['Only this value', () => { if (added) add(added, false, language()); }],
    ['Without this value', () => { if (added) add(added, true, language()); }],
    ['Copy value', () => void copy(open.value, 'Value')],
    ['Copy row', () => void copy(open.row, 'Row')],
  ];
  const keys = (event: KeyboardEvent): void => {
    event.stopPropagation();
    if (event.key === 'Escape' || event.key === 'Tab') {
      event.preventDefault();
      close();
    }
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined || !box.current) return;
    event.preventDefault();
    const all = [...box.current.querySelectorAll('button')];
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    all[(at + by + all.length) % all.length]?.focus();
  };
  const left = Math.min(open.x, innerWidth - 220);
  const top = Math.min(open.y, innerHeight - 150);
  return (
    <div class="menu" role="menu" aria-label={`${open.field} ${open.value}`} ref={box} onKeyDown={keys}
      style={{ left: `${left}px`, top: `${top}px` }}>
      <p class="mono">{open.value}</p>
      {items.map(([text, act]) => (
        <button role="menuitem" onClick={() => { close(); act(); }}>{text}</button>
      ))}
    </div>
  );
}
