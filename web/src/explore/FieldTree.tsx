import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import type { Field, Layer } from '../net/types';
import { Icon } from '../parts/Icon';
import { change } from '../state/view';
import { hovered, kept } from './packet';

const KEY = 'closed-layers';
/** Layers that are closed, as last time. */
const closed = signal<Set<string>>(new Set((localStorage.getItem(KEY) ?? 'frame,eth').split(',')));

function toggle(name: string, open?: boolean): void {
  const next = new Set(closed.peek());
  const isClosed = open === undefined ? !next.has(name) : !open;
  if (isClosed) next.add(name);
  else next.delete(name);
  closed.value = next;
  localStorage.setItem(KEY, [...next].join());
}

export function keep(field: Field): void {
  kept.value = field;
  change({ f: field.name }, 'replace');
}

/** The layers of a packet and their fields. */
export function FieldTree({ layers }: { layers: Layer[] }) {
  const box = useRef<HTMLDivElement>(null);
  const items = () => [...(box.current?.querySelectorAll<HTMLElement>('[role=treeitem]') ?? [])];
  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = items();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const now = all[at];
    const to = (n: number) => all[Math.max(0, Math.min(all.length - 1, n))]?.focus();
    const layer = now?.dataset.layer;
    const act = {
      ArrowDown: () => to(at + 1), ArrowUp: () => to(at - 1), Home: () => to(0),
      End: () => to(all.length - 1),
      ArrowRight: () => { if (now?.hasAttribute('aria-expanded') && layer) toggle(layer, true); },
      ArrowLeft: () => {
        if (now?.hasAttribute('aria-expanded') && layer) toggle(layer, false);
        else all.slice(0, at).reverse().find((one) => one.hasAttribute('aria-expanded'))?.focus();
      },
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  const lit = hovered.value ?? kept.value;
  return (
    <div class="tree" role="tree" aria-label="Fields" id="fields" ref={box} onKeyDown={keys}
      onMouseLeave={() => { hovered.value = null; }}>
      {layers.map((layer, n) => {
        const isOpen = !closed.value.has(layer.name);
        return (
          <>
            <div class="ly" role="treeitem" aria-level={1} aria-expanded={isOpen} data-layer={layer.name}
              tabIndex={n === 0 ? 0 : -1} onClick={() => toggle(layer.name)}
              onKeyDown={(event) => {
                if (event.key !== 'Enter' && event.key !== ' ') return;
                event.preventDefault();
                event.stopPropagation();
                toggle(layer.name);
              }}>
              <Icon name="right" /><span>{layer.title}</span>
              <span>{layer.summary}{layer.cut && <em class="bad"> cut off</em>}</span>
            </div>
            {isOpen && layer.fields.map((field) => (
              <div
                class={`fd${lit === field ? ' on' : ''}`} role="treeitem" aria-level={2} tabIndex={-1}
                aria-selected={kept.value === field} data-field={field.name}
                onMouseEnter={() => { hovered.value = field; }}
                onFocus={() => { hovered.value = field; }}
                onBlur={() => { hovered.value = null; }}
                onClick={() => keep(field)}
                onKeyDown={(event) => {
                  if (event.key !== 'Enter') return;
                  event.preventDefault();
                  event.stopPropagation();
                  keep(field);
                }}
              >
                <span class="k">{field.label}</span>
                <span class="v" title={field.value}>{field.value}</span>
                <span class="f">{field.name}</span>
              </div>
            ))}
          </>
        );
      })}
    </div>
  );
}
