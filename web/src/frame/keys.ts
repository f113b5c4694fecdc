/** The keyboard of the page. */

import { signal } from '@preact/signals';
import { open, show } from '../parts/Dialog';
import { isOpen as timesOpen } from '../ask/TimesMenu';
import { ACTIONS, type Action } from './actions';
import { pages } from './TopBar';

/** Single keys can be switched off: who speaks to the computer presses them by mistake. */
export const singles = signal(localStorage.getItem('keys') !== 'off');

export function setSingles(on: boolean): void {
  singles.value = on;
  localStorage.setItem('keys', on ? 'on' : 'off');
}

const PANES = ['q', 'timeline', 'tops', 'list', 'packet'];
const SECOND_KEY_MS = 1500;
let first = '';
let firstAt = 0;

/** How a key is written in the list of actions. */
function written(event: KeyboardEvent): string {
  const { key } = event;
  const names: Record<string, string> = {
    ArrowLeft: '←', ArrowRight: '→', ArrowUp: '↑', ArrowDown: '↓', Escape: 'Esc', ' ': 'Space', '=': '+',
  };
  const name = names[key] ?? (key.length === 1 ? key.toUpperCase() : key);
  return event.shiftKey && /^[A-Z]$/.test(name) ? `Shift ${name}` : name;
}

function isText(target: EventTarget | null): boolean {
  return target instanceof HTMLInputElement || target instanceof HTMLSelectElement
    || target instanceof HTMLTextAreaElement;
}

function pane(by: 1 | -1): void {
  const at = PANES.findIndex((id) => document.getElementById(id)?.contains(document.activeElement));
  for (let n = 1; n <= PANES.length; n += 1) {
    const id = PANES[(at + by * n + 2 * PANES.length) % PANES.length] ?? 'q';
    const element = document.getElementById(id);
    if (!element) continue;
    const inside = id === 'list' ? element.querySelector<HTMLElement>('.vlist')
      : id === 'packet' ? element.querySelector<HTMLElement>('[role=treeitem]') : null;
    (inside ?? element).focus();
    return;
  }
}

function find(key: string): Action | undefined {
  return ACTIONS.find((action) => action.key === key && !action.listed);
}

export function listenToKeys(): void {
  addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      show(open.peek() === 'palette' ? null : 'palette');
      return;
    }
    if (event.key === 'F6') {
      event.preventDefault();
      pane(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || open.peek() !== null) return;
    if (isText(event.target) || timesOpen.peek() || event.defaultPrevented) return;
    const key = written(event);
    // What a button does on Enter and the blank is its own.
    const isButton = event.target instanceof HTMLButtonElement || event.target instanceof HTMLAnchorElement;
    if (isButton && (key === 'Enter' || key === 'Space')) return;
    if (!singles.peek() && key !== 'Esc') return;
    if (first === 'G' && performance.now() - firstAt < SECOND_KEY_MS) {
      first = '';
      const action = find(`G ${key}`);
      if (action && pages.peek().some(([, name]) => name === action.name)) {
        event.preventDefault();
        action.act();
      }
      return;
    }
    first = key === 'G' ? key : '';
    firstAt = performance.now();
    const action = find(key);
    if (!action) return;
    event.preventDefault();
    action.act();
  });
}
