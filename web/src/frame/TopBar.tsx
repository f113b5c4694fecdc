import { computed } from '@preact/signals';
import { Icon } from '../parts/Icon';
import { show } from '../parts/Dialog';
import { mayExtract, status } from '../state/session';
import { toggle } from '../state/theme';
import { type Page, change, view, write } from '../state/view';

const TITLES: Record<Page, string> = {
  explore: 'Explore', recorder: 'Recorder', explain: 'Explain', jobs: 'Jobs', audit: 'Audit',
  nodes: 'Nodes',
};

/** The pages that the role may see. */
export const pages = computed<[Page, string][]>(() => {
  const now = status.value;
  const may: Page[] = ['explore'];
  if (now !== null && !now.limited) may.push('recorder', 'explain');
  if (mayExtract.value) may.push('jobs');
  if (now?.may === 'admin') may.push('audit');
  if ((now?.nodes.length ?? 0) > 0) may.push('nodes');
  return may.map((page) => [page, TITLES[page]]);
});

export function Logo() {
  const dark = [[1, 1], [12.4, 1], [1, 12.4], [6.7, 12.4]];
  const pale = [[6.7, 1], [1, 6.7], [12.4, 6.7], [12.4, 12.4]];
  const squares = (of: number[][]) => of.map(([x = 0, y = 0]) => `M${x} ${y}h4.600v4.600h-4.600z`).join('');
  return (
    <svg viewBox="0 0 18 18" aria-hidden="true">
      <path fill="currentColor" d={squares(dark)} />
      <path fill="currentColor" opacity=".28" d={squares(pale)} />
      <path class="lit" d={squares([[6.7, 6.7]])} />
    </svg>
  );
}

/** Pages, palette, archive, role. */
export function TopBar() {
  const { page } = view.value;
  const now = status.value;
  return (
    <header class="top">
      <a class="brand" href="/explore"><Logo />tapdex</a>
      <nav aria-label="Pages">
        {pages.value.map(([name, text]) => (
          <a href={write({ ...view.value, page: name })} aria-current={name === page ? 'page' : undefined}
            onClick={(event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey) return;
              event.preventDefault();
              change({ page: name }, 'push');
            }}>{text}</a>
        ))}
      </nav>
      <span class="grow" />
      <button class="pal-btn" onClick={() => show('palette')} title="Go to, do, find">
        <Icon name="search" /><span class="tx">Go to, do, find</span><kbd>Ctrl K</kbd>
      </button>
      {now !== null && (
        <>
          <span class="who arch"><span class="dim">archive</span> <b>{now.node}</b></span>
          <span class="who"><span class="dim">role</span> <span class="tag" id="role-name">{now.role}</span></span>
        </>
      )}
      <button class="btn sq" title="Light or dark (Shift T)" aria-label="Light or dark" onClick={toggle}>
        <Icon name="moon" />
      </button>
      <button class="btn sq" title="Keys (?)" aria-label="Keys" onClick={() => show('keys')}>
        <Icon name="keys" />
      </button>
    </header>
  );
}
