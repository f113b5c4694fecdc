import { useRef } from 'preact/hooks';
import type { Flow } from '../net/types';
import { flows, flowsMost } from '../state/answers';
import { change, view } from '../state/view';
import { bytes, whole } from '../text/numbers';
import { clock, length, parse, zone } from '../text/time';
import { Empty } from './Empty';
import { flowFilter } from './flowFilter';
import { Address } from './PacketRow';
import { list } from './Packets';
import { classOf } from './protocols';
import { currentFlow, flowCursor } from './selection';
import { type Handle, VirtualRows } from './VirtualRows';

/** How a TCP connection went, in words, after the letters of Zeek. */
const STATES: Record<string, [string, boolean]> = {
  S0: ['no answer', true], S1: ['open', false], SF: ['closed', false], REJ: ['refused', true],
  S2: ['half closed', false], S3: ['half closed', false], RSTO: ['reset', true],
  RSTR: ['reset', true], RSTOS0: ['reset, no answer', true], RSTRH: ['reset, no SYN', true],
  SH: ['no answer', true], SHR: ['no SYN', false], OTH: ['no start', false],
};

const MORE_MAX = 100_000;

export async function followFlow(flow: Flow): Promise<void> {
  const filter = flowFilter(flow, 'pcap');
  change({ q: filter, syntax: undefined, tab: 'packets', page: 'explore', at: undefined }, 'push');
}

/** The conversations of the answer. */
export function Flows() {
  const found = flows.value.value;
  const handle = useRef<Handle>(null);
  const all = found?.flows ?? [];
  list.value = handle.current;
  const select = (n: number): void => {
    const at = Math.max(0, Math.min(all.length - 1, n));
    flowCursor.value = at;
    currentFlow.value = all[at] ?? null;
    handle.current?.reveal(at);
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = flowCursor.peek();
    const page = handle.current?.rows() ?? 20;
    const act = {
      ArrowDown: () => select(now + 1), j: () => select(now + 1),
      ArrowUp: () => select(now - 1), k: () => select(now - 1),
      PageDown: () => select(now + page), PageUp: () => select(now - page),
      ' ': () => select(now + (event.shiftKey ? -page : page)),
      Home: () => select(0), End: () => select(all.length - 1),
      Enter: () => { const flow = all[now]; if (flow) void followFlow(flow); },
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  if (found !== null && found.conversations === 0 && !flows.value.busy) return <Empty />;
  const most = Math.max(1, ...all.map((flow) => Math.max(flow.client_bytes, flow.server_bytes)));
  const share = (n: number) => Math.sqrt(n / most);
  const { sort } = view.value;
  const heading = (text: string, by: typeof sort, more = '') => (
    <span role="columnheader" class={more} aria-sort={sort === by ? 'descending' : 'none'}>
      <button class={`link${sort === by ? ' is' : ''}`} onClick={() => change({ sort: by }, 'push')}>
        {text}
      </button>
    </span>
  );
  return (
    <>
      <div class={`tw${flows.value.busy ? ' stale' : ''}`}>
        <VirtualRows
          total={all.length} label="Conversations" handle={handle} columns="of-flows" keys={keys}
          active={flowCursor.value < 0 ? undefined : `row-${flowCursor.value}`}
          seen={(_, last) => {
            const more = found !== null && found.conversations > all.length;
            if (more && last > all.length - 50 && flowsMost.peek() < MORE_MAX) {
              flowsMost.value = Math.min(MORE_MAX, flowsMost.peek() * 10);
            }
          }}
          head={<>
            {heading(`First, ${zone.value}`, 'time')}
            <span role="columnheader">From</span>
            <span role="columnheader">To</span>
            <span role="columnheader" class="h2">Proto</span>
            {heading('Bytes →', 'bytes', 'num')}
            <span role="columnheader" aria-label="Bytes each way" class="h2" />
            <span role="columnheader">← Bytes</span>
            {heading('Packets', 'packets', 'num')}
            <span role="columnheader" class="num">Time</span>
            <span role="columnheader">State</span>
            <span role="columnheader" class="h2">Community ID</span>
          </>}
          row={(n) => {
            const flow = all[n];
            if (flow === undefined) return null;
            const [state, bad] = STATES[flow.state ?? ''] ?? [flow.state ?? '', false];
            const ns = BigInt(Math.round(flow.duration * 1e9));
            return (
              <div key={n} role="row" id={`row-${n}`} aria-rowindex={n + 2}
                aria-selected={n === flowCursor.value} class={`vr e-${classOf(flow.protocol)}`}
                onClick={() => select(n)} onDblClick={() => void followFlow(flow)}>
                <span role="gridcell">{clock(parse(flow.start) ?? 0n, 1_000_000n)}</span>
                <span role="gridcell"><Address address={flow.client} port={flow.client_port} /></span>
                <span role="gridcell"><Address address={flow.server} port={flow.server_port} /></span>
                <span role="gridcell" class="pr h2">{flow.protocol.toUpperCase()}</span>
                <span role="gridcell" class="num">{bytes(flow.client_bytes)}</span>
                <span role="gridcell" class="pair h2" aria-hidden="true">
                  <i style={{ width: `${50 * share(flow.client_bytes)}%` }} />
                  <i style={{ width: `${50 * share(flow.server_bytes)}%` }} />
                </span>
                <span role="gridcell">{bytes(flow.server_bytes)}</span>
                <span role="gridcell" class="num">{whole(flow.client_packets + flow.server_packets)}</span>
                <span role="gridcell" class="num">{length(ns)}</span>
                <span role="gridcell" class={bad ? 'st bad' : 'st'}>{state || '–'}</span>
                <span role="gridcell" class="in h2">{flow.community_id}</span>
              </div>
            );
          }}
        />
      </div>
      <div class="foot">
        <span>{whole(all.length)} of {whole(found?.conversations ?? 0)}</span>
        <span class="opt">most {sort === 'time' ? 'early' : sort} first; of the packets that match; bars by square root</span>
        <span class="grow" />
        <span class="opt"><kbd>J</kbd> <kbd>K</kbd> move</span>
        <span class="opt"><kbd>Enter</kbd> <kbd>F</kbd> its packets</span>
      </div>
    </>
  );
}

