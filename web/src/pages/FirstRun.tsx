import { effect, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Count, Histogram } from '../net/types';
import { ask, isAborted } from '../net/server';
import { Icon } from '../parts/Icon';
import { status } from '../state/session';
import { extent } from '../state/times';
import { type View, reask, view } from '../state/view';
import { length } from '../text/time';
import { whole } from '../text/numbers';

interface Example {
  title: string;
  q: string;
  more?: Partial<View>;
}

/** Of the traffic that tapdex demo makes up. */
const DEMO: Example[] = [
  { title: 'Who is scanning?', q: 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn', more: { stack: 'src' } },
  { title: 'When did the flood come, and to whom?', q: 'udp and dst host 10.1.0.2', more: { stack: 'src' } },
  { title: 'Who sends the most out of the network?', q: 'src net 10.0.0.0/8 and not dst net 10.0.0.0/8', more: { by: 'bytes', stack: 'src' } },
  { title: 'Which connections were refused?', q: 'tcp[tcpflags] & tcp-rst != 0' },
  { title: 'Who asks name servers that are not ours?', q: 'udp port 53 and not net 10.0.0.0/8' },
];

/** Of any traffic. */
const OWN: Example[] = [
  { title: 'Who talks most?', q: '', more: { tab: 'flows' } },
  { title: 'Which connections were reset?', q: 'tcp[tcpflags] & tcp-rst != 0' },
  { title: 'Who asks and gets no answer?', q: 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn' },
  { title: 'Which name servers are asked?', q: 'udp dst port 53', more: { stack: 'dst' } },
  { title: 'What are the largest conversations?', q: 'tcp or udp', more: { tab: 'flows', sort: 'bytes' } },
];

export const isDone = signal(sessionStorage.getItem('first') === 'done');

export function done(): void {
  isDone.value = true;
  sessionStorage.setItem('first', 'done');
}

// Who has asked something needs no examples.
effect(() => {
  const { q, from, to } = view.value;
  if (q !== '' || from !== undefined || to !== undefined) done();
});

const found = signal<Map<string, { count: number; spans: number[] }>>(new Map());

async function load(example: Example, abort: AbortSignal): Promise<void> {
  try {
    const { count } = await ask<Count>('/api/v1/count', { q: example.q }, abort);
    const { spans } = await ask<Histogram>('/api/v1/histogram', { q: example.q, bins: 44 }, abort);
    const shape = spans.map(({ packets }) => packets);
    found.value = new Map(found.value).set(example.q, { count, spans: shape });
  } catch (error) {
    if (!isAborted(error) && !(error instanceof Error)) throw error;
  }
}

function Shape({ spans }: { spans: number[] }) {
  const most = Math.max(1, ...spans);
  const wide = 180 / Math.max(1, spans.length);
  const bars = spans.map((n, at) => {
    const high = n === 0 ? 0 : Math.max(1, (n / most) * 30);
    return `M${(at * wide).toFixed(1)} 32v${(-high).toFixed(1)}h${(wide * 0.8).toFixed(1)}v${high.toFixed(1)}z`;
  });
  return <svg class="sp" width="180" height="32" aria-hidden="true"><path d={bars.join('')} /></svg>;
}

/** Five questions to start with. */
export function FirstRun() {
  const now = status.value;
  const examples = now?.demo ? DEMO : OWN;
  const go = (example: Example): void => {
    done();
    reask({ q: example.q, ...example.more });
  };
  useEffect(() => {
    const abort = new AbortController();
    void (async () => {
      for (const example of examples) await load(example, abort.signal);
    })();
    const keys = (event: KeyboardEvent) => {
      const example = examples[Number(event.key) - 1];
      const isText = event.target instanceof HTMLInputElement;
      if (example === undefined || isText || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      go(example);
    };
    addEventListener('keydown', keys, { capture: true });
    return () => {
      abort.abort();
      removeEventListener('keydown', keys, { capture: true });
    };
  }, [now?.demo]);
  const all = extent.value;
  return (
    <div class="sheet">
      <div class="first" id="first">
        <div>
          <h1>{whole(now?.kept?.packets ?? 0)} packets are ready</h1>
          <p class="lead">
            {now?.demo ? `Made-up traffic of ${all === null ? '' : length(all.to - all.from)}, with a scan, a flood and an exfiltration in it. `
              : all === null ? '' : `From ${length(all.to - all.from)} of traffic. `}
            Here are five questions to start with: click one, or press its number.
          </p>
        </div>
        <div class="qs">
          {examples.map((example, n) => {
            const answer = found.value.get(example.q);
            return (
              <button class="q" onClick={() => go(example)}>
                <span class="ix" aria-hidden="true">{n + 1}</span>
                <span class="qt"><b>{example.title}</b><span class="mono">{example.q || 'every packet'}</span></span>
                <Shape spans={answer?.spans ?? []} />
                <span class="cn"><b>{answer === undefined ? '' : whole(answer.count)}</b> <span>packets</span></span>
                <Icon name="right" />
              </button>
            );
          })}
        </div>
        <div class="own">
          <button class="card" onClick={() => { done(); document.getElementById('q')?.focus(); }}>
            <b>Ask your own</b><p>Filters of tcpdump and Wireshark's fields.</p>
            <span class="dim">Press <kbd>/</kbd> and type</span></button>
          <div class="card"><b>Take in a capture</b><p>It stays where it is.</p><code>tapdex index capture.pcapng</code></div>
          <div class="card"><b>Record</b><p>Days of packets, the oldest go.</p><code>tapdex record -i eth0 -w archive</code></div>
        </div>
      </div>
    </div>
  );
}
