/** What is on the screen: all of it is in the address, and nothing else is. */

import { computed, signal } from '@preact/signals';

export const PAGES = ['explore', 'recorder', 'explain', 'jobs', 'audit', 'nodes'] as const;
export type Page = (typeof PAGES)[number];
export type Language = 'pcap' | 'wireshark';
export type By = 'packets' | 'bytes';
export type Tab = 'packets' | 'flows';
export type Sort = 'bytes' | 'time' | 'packets';

export interface View {
  page: Page;
  q: string;
  /** Only if it was chosen by hand. */
  syntax?: Language;
  from?: string;
  to?: string;
  live: boolean;
  by: By;
  stack: string;
  tops: string[];
  tab: Tab;
  sort: Sort;
  /** The time of the first row in view. */
  at?: string;
  /** The packet that is open, by its id. */
  p?: string;
  /** The field that is lit. */
  f?: string;
}

export const TOPS = ['proto', 'src', 'dst', 'port', 'iface'];

const START: View = {
  page: 'explore', q: '', live: false, by: 'packets', stack: 'proto', tops: TOPS, tab: 'packets',
  sort: 'bytes',
};

const one = <T extends string>(text: string | null, of: readonly T[], other: T): T =>
  of.find((word) => word === text) ?? other;

/** Reads an address; what it does not have, or has wrong, is as at the start. */
export function read(path: string, query: string): View {
  const found = new URLSearchParams(query);
  const text = (name: string) => found.get(name) || undefined;
  const syntax = text('syntax');
  const tops = text('tops')?.split(',').filter((name) => name !== '');
  return {
    page: one(path.replace(/^\/|\/$/g, ''), PAGES, 'explore'),
    q: found.get('q') ?? '',
    syntax: syntax === 'pcap' || syntax === 'wireshark' ? syntax : undefined,
    from: text('from'),
    to: text('to'),
    live: found.get('live') === '1',
    by: one(found.get('by'), ['packets', 'bytes'], 'packets'),
    stack: text('stack') ?? START.stack,
    tops: tops === undefined || tops.length === 0 ? TOPS : tops.slice(0, 12),
    tab: one(found.get('tab'), ['packets', 'flows'], 'packets'),
    sort: one(found.get('sort'), ['bytes', 'time', 'packets'], 'bytes'),
    at: text('at'),
    p: text('p'),
    f: text('f'),
  };
}

/** Readable, and without what chats cut off. */
function encode(text: string): string {
  const escaped = encodeURIComponent(text).replace(
    /[()'!*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return escaped.replaceAll('%20', '+').replaceAll('%3A', ':').replaceAll('%2F', '/')
    .replaceAll('%2C', ',');
}

/** Path and query; what is as at the start is left out. */
export function write(view: View): string {
  const pairs: [string, string | undefined][] = [
    ['q', view.q],
    ['syntax', view.syntax],
    ['from', view.from],
    ['to', view.to],
    ['live', view.live ? '1' : undefined],
    ['by', view.by === START.by ? undefined : view.by],
    ['stack', view.stack === START.stack ? undefined : view.stack],
    ['tops', view.tops.join() === TOPS.join() ? undefined : view.tops.join()],
    ['tab', view.tab === START.tab ? undefined : view.tab],
    ['sort', view.sort === START.sort ? undefined : view.sort],
    ['at', view.at],
    ['p', view.p],
    ['f', view.f],
  ];
  const query = pairs.flatMap(([name, value]) => (value ? [`${name}=${encode(value)}`] : []));
  return `/${view.page}${query.length === 0 ? '' : `?${query.join('&')}`}`;
}

export const view = signal<View>(read(location.pathname, location.search));

/** Changes what is on the screen. Steps that Back should undo `push`, others `replace`. */
export function change(to: Partial<View>, how: 'push' | 'replace'): void {
  const next = { ...view.peek(), ...to };
  const address = write(next);
  if (address !== write(view.peek())) {
    if (how === 'push') history.pushState(null, '', address);
    else history.replaceState(null, '', address);
  }
  view.value = next;
}

/** The question on the screen changes: what was open, lit and in view belongs to the old one. */
export function reask(to: Partial<View>, how: 'push' | 'replace' = 'push'): void {
  change({ page: view.peek().page === 'explain' ? 'explain' : 'explore', at: undefined, ...to }, how);
}

addEventListener('popstate', () => {
  view.value = read(location.pathname, location.search);
});

/** What the server is asked: two views with the same have the same answers. */
export const question = computed(() => {
  const { q, syntax, from, to } = view.value;
  return { q: q.trim(), syntax, from, to };
});
export type Question = typeof question.value;
