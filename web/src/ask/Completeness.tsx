import { Icon } from '../parts/Icon';
import { answered, count } from '../state/answers';
import { status } from '../state/session';
import { change } from '../state/view';
import { setTimes, shown } from '../state/times';
import type { Answer, Interval, Missing } from '../net/types';
import { type Ns, clock, length, parse } from '../text/time';
import { counted } from '../text/numbers';

/** What is missing, in the words of the page. */
export function missingText(one: Missing): string {
  const at = one.node ? `${one.node}: ` : '';
  const from = parse(one.from ?? '');
  const to = parse(one.to ?? '');
  const when = from === undefined || to === undefined ? ''
    : `, ${clock(from, 1_000_000_000n)} to ${clock(to, 1_000_000_000n)}`;
  const known = one.packets ?? one.at_least ?? 0;
  const many = one.packets !== null ? counted(known, 'packet')
    : known > 0 ? `at least ${counted(known, 'packet')}` : 'packets';
  switch (one.cause) {
    case 'lost': return `${at}${many} lost while recording${when}.`;
    case 'removed': return `${at}${many} removed, as no more was to be kept${when}.`;
    case 'not-recorded': case 'not_recorded':
      return `${at}${one.what || 'Nothing recorded'}${when}.`;
    default: return `${at}${one.what || one.cause}${when}.`;
  }
}

/** How long the times are that something is missing from, overlaps counted once. */
export function missingNs(answer: Answer): Ns {
  const spans = (answer.intervals ?? [])
    .map((one): [Ns, Ns] => [parse(one.from) ?? 0n, parse(one.to) ?? 0n])
    .sort((a, b) => (a[0] < b[0] ? -1 : 1));
  let sum = 0n;
  let end = 0n;
  for (const [from, to] of spans) {
    const start = from > end ? from : end;
    if (to > start) sum += to - start;
    if (to > end) end = to;
  }
  return sum;
}

/** The first interval that something is missing from, with some room on both sides. */
export function zoomTo(interval: Interval): void {
  const from = parse(interval.from);
  const to = parse(interval.to);
  if (from === undefined || to === undefined) return;
  const room = (to - from) / 2n + 1_000_000_000n;
  setTimes({ from: from - room, to: to + room });
}

/** The strip under the count: whether the answer is complete, and if not, why. */
export function Completeness() {
  answered.value;
  const answer = count.value.value;
  if (answer === null || answer.complete) return null;
  const range = shown.value;
  const missing = missingNs(answer);
  const of = range === null ? '' : ` of ${length(range.to - range.from)}`;
  const first = answer.intervals?.[0];
  return (
    <div class="note" id="incomplete">
      <i class="sw" aria-hidden="true" />
      <span class="tx">
        <b>Not complete{missing > 0n ? ` for ${length(missing)}${of}` : ''}.</b>{' '}
        {answer.incomplete.map(missingText).join(' ')}
      </span>
      {first !== undefined && (
        <button class="btn sm" onClick={() => zoomTo(first)}>Zoom to the loss</button>
      )}
      {!status.value?.limited && (
        <button class="btn sm" onClick={() => change({ page: 'recorder' }, 'push')}>Why</button>
      )}
    </div>
  );
}

/** What else the server has to say about the answer. */
export function Notes() {
  const answer = count.value.value;
  const notes = (answer?.notes ?? []).filter((note) => !note.includes('behind VLAN tags'));
  if (notes.length === 0) return null;
  return (
    <div class="note info">
      <Icon name="warn" /><span class="tx">{notes.join('; ')}</span>
    </div>
  );
}

