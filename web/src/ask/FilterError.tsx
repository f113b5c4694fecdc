import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { wrong } from '../state/answers';
import { reask, view } from '../state/view';
import { characters } from '../text/utf8';
import { inset } from './FilterBox';

/** A half-typed word does not flash: an error is shown some time after the last key. */
export const showError = signal(false);
const WAIT_MS = 240;

/** Carets under the very characters that are wrong, what is wrong, and what to write instead. */
export function FilterError() {
  const error = wrong.value;
  const { q } = view.value;
  useEffect(() => {
    if (error === null) {
      showError.value = false;
      return;
    }
    const timer = setTimeout(() => { showError.value = true; }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [error, q]);
  const isShown = error !== null && showError.value;
  if (!isShown) return <div class="ferr" id="ferr" hidden />;
  const from = characters(q, error.offset ?? 0);
  const to = characters(q, (error.offset ?? 0) + (error.length ?? 0));
  const { fix } = error;
  return (
    <div class="ferr" id="ferr" style={{ paddingLeft: `${inset.value}px` }}>
      {error.offset !== undefined && (
        <span class="car" aria-hidden="true" data-at={from}>
          <span class="pad">{q.slice(0, from)}</span>{'^'.repeat(Math.max(1, to - from))}
        </span>
      )}
      <span class="msg">
        {error.message}
        {error.hint !== undefined && fix === undefined ? `; ${error.hint}` : ''}{' '}
        {fix !== undefined && (
          <button class="link" onClick={() => {
            reask({ q: q.slice(0, from) + fix + q.slice(to) });
            document.getElementById('q')?.focus();
          }}>Write {fix}</button>
        )}
      </span>
    </div>
  );
}
