import { useState } from 'preact/hooks';
import { Dialog, show } from '../parts/Dialog';
import { filters } from '../state/history';
import { fields } from '../state/session';
import { change, reask, view } from '../state/view';
import { ACTIONS } from './actions';
import { pages } from './TopBar';

interface Item {
  group: string;
  name: string;
  key?: string;
  act: () => void;
}

function items(typed: string): Item[] {
  const text = typed.trim().toLowerCase();
  const has = (name: string) => name.toLowerCase().includes(text);
  const known = pages.peek().map(([, name]) => name);
  const actions = ACTIONS.filter(({ group, name, listed }) =>
    !listed && name !== 'Anything' && has(name) && (group !== 'Pages' || !name.match(/^[A-Z]/)
      || known.includes(name) || ['Light or dark', 'Keys'].includes(name)));
  const found: Item[] = actions.map(({ group, name, key, act }) => ({ group, name, key, act }));
  const old = filters.peek().filter(has).reverse().slice(0, 5);
  found.push(...old.map((q) => ({ group: 'Filters asked before', name: q, act: () => reask({ q }) })));
  if (text.length > 1) {
    const names = fields.peek().filter(({ field, about }) => has(field) || has(about)).slice(0, 6);
    found.push(...names.map(({ field }) => ({
      group: 'Top values of a field', name: field,
      act: () => change({ tops: [...new Set([...view.peek().tops, field])] }, 'push'),
    })));
    if (/^[\d.]+$|:/.test(text) && /[.:]/.test(text)) {
      found.unshift({ group: 'Address', name: `host ${text}`, act: () => reask({ q: `host ${text}` }) });
    }
  }
  return found;
}

/** Everything that can be done, by typing a part of its name. */
export function Palette() {
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const all = items(typed);
  const chosen = Math.min(at, all.length - 1);
  const run = (item: Item | undefined): void => {
    if (!item) return;
    show(null);
    item.act();
  };
  return (
    <Dialog label="Go to, do, find">
      <input
        data-first role="combobox" aria-label="Command, page, address or field" aria-expanded="true"
        aria-controls="palette" aria-activedescendant={`do-${chosen}`}
        placeholder="Type a command, a page, an address or a field" value={typed}
        onInput={(event) => { setTyped(event.currentTarget.value); setAt(0); }}
        onKeyDown={(event) => {
          const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (by !== undefined) {
            event.preventDefault();
            setAt((chosen + by + all.length) % Math.max(1, all.length));
            document.getElementById(`do-${(chosen + by + all.length) % Math.max(1, all.length)}`)
              ?.scrollIntoView({ block: 'nearest' });
          } else if (event.key === 'Enter') {
            event.preventDefault();
            run(all[chosen]);
          }
        }}
      />
      <ul role="listbox" id="palette" class="scroll" aria-label="What can be done" tabIndex={0}>
        {all.map((item, n) => (
          <>
            {item.group !== all[n - 1]?.group && <li role="presentation" class="h">{item.group}</li>}
            <li role="option" id={`do-${n}`} aria-selected={n === chosen}
              onMouseDown={(event) => { event.preventDefault(); run(item); }}>
              <span>{item.name}</span>{item.key ? <kbd>{item.key}</kbd> : null}
            </li>
          </>
        ))}
      </ul>
    </Dialog>
  );
}
