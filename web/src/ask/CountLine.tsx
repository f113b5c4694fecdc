import { signal, useSignalEffect } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { say } from '../parts/announce';
import { count, flows, params, stop, took, wrong } from '../state/answers';
import { status } from '../state/session';
import { change, reask, view } from '../state/view';
import { bytes, counted, short, whole } from '../text/numbers';
import { language } from './terms';
import { TakeAway } from './TakeAway';

/** Whether an answer has been on its way for more than a second: packets are read for it. */
const isLate = signal(false);
const LATE_MS = 1000;

/** How the answer was found, in a few words. */
function how(): string {
  const answer = count.value.value;
  if (answer === null) return '';
  const ms = answer.seconds * 1000;
  const time = ms < 1 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${ms.toFixed(0)} ms`
    : `${answer.seconds.toFixed(1)} s`;
  const { read } = answer;
  return `${time}, ${read > 0 ? `${whole(read)} packets read` : 'from columns, no packet read'}`;
}

/** The number, its bytes and conversations, and how it was found. */
export function CountLine() {
  const { value, busy, number } = count.value;
  const isWrong = wrong.value !== null;
  const found = flows.value.number === number ? flows.value.value : null;
  const behind = value?.behind_tags;
  useSignalEffect(() => {
    const now = count.value;
    if (now.busy || now.value === null) return;
    const complete = now.value.complete ? 'complete' : 'not complete';
    say(`${counted(now.value.count, 'packet')}, ${complete}`);
  });
  useEffect(() => {
    isLate.value = false;
    if (!busy) return;
    const timer = setTimeout(() => { isLate.value = true; }, LATE_MS);
    return () => clearTimeout(timer);
  }, [busy]);
  return (
    <div class={`sum${busy || isWrong ? ' stale' : ''}`}>
      <span class="n" id="count" data-number={number} data-took={took.value.toFixed(1)}>
        {value === null ? '-' : whole(value.count)}
      </span>
      <span class="u">
        packets{isWrong && value !== null ? ', the answer to the last filter that was right' : ''}
      </span>
      {!isWrong && value !== null && value.count > 0 && (
        <>
          {found !== null && <span>{bytes(found.bytes)}</span>}
          {found !== null && <span class="opt">{short(found.conversations)} conversations</span>}
        </>
      )}
      {!isWrong && value !== null && (
        <>
          <span class="sep" aria-hidden="true" />
          {status.value?.limited ? <span id="how">{how()}</span> : (
            <button class="link" title="How this was answered (G X)" id="how"
              onClick={() => change({ page: 'explain' }, 'push')}>{how()}</button>
          )}
        </>
      )}
      {behind !== undefined && !isWrong && language() === 'pcap' && view.value.q !== '' && (
        <span class="vlan opt">
          {behind.exact ? '' : 'at most '}{whole(behind.packets)} more behind VLAN tags:{' '}
          <button class="link" onClick={() => {
            const q = String(params.peek().q);
            reask({ q: `(${q}) or (vlan and (${q}))` });
          }}>count them too</button>
        </span>
      )}
      {busy && isLate.value && (
        <button class="btn sm" id="stop" onClick={stop}>Stop</button>
      )}
      <TakeAway />
    </div>
  );
}
