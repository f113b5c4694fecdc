import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { missingText } from '../ask/Completeness';
import type { Histogram, Recorder as Known } from '../net/types';
import { ask, isAborted } from '../net/server';
import { Choose } from '../parts/Choose';
import { seen, status } from '../state/session';
import { now } from '../state/times';
import { bits, bytes, whole } from '../text/numbers';
import { HOUR, MINUTE, type Ns, clock, format, length, parse, parts } from '../text/time';
import { Lines } from './Lines';

const RANGES = [['15m', '15 min'], ['1h', '1 h'], ['24h', '24 h'], ['all', 'all']] as const;
type RangeName = (typeof RANGES)[number][0];
const LENGTHS: Record<RangeName, Ns | null> = { '15m': 15n * MINUTE, '1h': HOUR, '24h': 24n * HOUR, all: null };

const range = signal<RangeName>('1h');
const rate = signal<Histogram | null>(null);

async function load(abort: AbortSignal): Promise<void> {
  const long = LENGTHS[range.peek()];
  const last = status.peek()?.recorder?.running === true ? now() : parse(status.peek()?.kept?.last ?? '');
  const from = long === null || last === undefined ? undefined : format(last > long ? last - long : 0n);
  try {
    rate.value = await ask<Histogram>('/api/v1/histogram', { bins: 120, by: 'bytes', from }, abort);
  } catch (error) {
    if (!isAborted(error)) rate.value = null;
  }
}

/** What each stage has passed on and lost, in the order in which packets meet them. */
function stages(recorder: Known): { name: string; passed: number; lost: number; more: string }[] {
  const { lost, packets } = recorder.run;
  const names = [
    ['interface', 'Network card'], ['kernel', 'Kernel ring'], ['writer', 'Queue and writer'], ['indexer', 'Index'],
  ] as const;
  const fills = (of: 'ring_fill' | 'queue_fill') =>
    `${Math.round(100 * Math.max(0, ...recorder.sources.map((source) => source[of] ?? 0)))} % full`;
  const more: Record<string, string> = {
    interface: recorder.sources.map(({ name }) => name).join(', '),
    kernel: fills('ring_fill'),
    writer: fills('queue_fill'),
    indexer: `${(recorder.index_lag_seconds ?? 0).toFixed(1)} s behind`,
  };
  let passed = packets + Object.values(lost).reduce((a, b) => a + b, 0);
  return names.map(([key, name]) => {
    const gone = lost[key] ?? 0;
    passed -= gone;
    return { name, passed, lost: gone, more: more[key] ?? '' };
  });
}

/** The recorder: what came, what was lost and where, what is kept. */
export function Recorder() {
  const now_ = status.value;
  const recorder = now_?.recorder ?? null;
  const kept = now_?.kept ?? null;
  useEffect(() => {
    const abort = new AbortController();
    void load(abort.signal);
    const timer = setInterval(() => { if (!document.hidden) void load(abort.signal); }, 5000);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [range.value, now_ === null]);
  const found = rate.value;
  const missing = found?.incomplete ?? [];
  const lost = missing.filter(({ cause }) => cause === 'lost')
    .reduce((sum, one) => sum + (one.packets ?? one.at_least ?? 0), 0);
  const first = parse(kept?.first ?? '');
  const last = parse(kept?.last ?? '');
  const spanS = (found?.span_ns ?? 1e9) / 1e9;
  const start = parse(found?.spans[0]?.time ?? '');
  const end = start === undefined || found === null ? undefined
    : start + BigInt(Math.round(found.span_ns)) * BigInt(found.spans.length);
  const shares = (found?.intervals ?? []).flatMap((one) => {
    const [from, to] = [parse(one.from), parse(one.to)];
    if (from === undefined || to === undefined || start === undefined || end === undefined) return [];
    const at = (ns: Ns) => Number(ns - start) / Number(end - start);
    return [{ from: Math.max(0, at(from)), to: Math.min(1, at(to)), gap: one.cause.startsWith('not') }];
  });
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label="Recorder">
      <div class="wrap">
        <div class="hd1">
          <h1>Recorder</h1>
          <p>
            <i class={`dot${recorder?.running ? '' : ' idle'}`} />
            {recorder === null ? 'This archive was made from files; nothing records into it.'
              : recorder.running ? `recording ${recorder.sources.map(({ name }) => name).join(' and ')}, into the archive ${now_?.node}`
                : `not recording: ${recorder.state}, last heard of ${recorder.updated}`}
          </p>
          <span class="rt"><Choose label="Range" small of={RANGES} value={range.value}
            set={(to) => { range.value = to; }} /></span>
        </div>
        {recorder !== null && (
          <div class="card">
            <header><h2>Losses by stage</h2><span class="dim">in this run; every packet is counted where it was lost</span></header>
            <div class="stages">
              {stages(recorder).map((stage) => (
                <div class={`sg${stage.lost > 0 ? ' bad' : ''}`}>
                  <h3>{stage.name}</h3><div class="big">{whole(stage.passed)}</div>
                  <div class="ls">{whole(stage.lost)} lost</div><div class="ls thin">{stage.more}</div>
                </div>
              ))}
            </div>
          </div>
        )}
        <div class="g2">
          <div class="card">
            <header><h2>Rate</h2><span class="dim">packets a second{lost > 0 ? `; ${whole(lost)} lost in this range` : ''}</span>
              {recorder !== null && <span class="rt"><b>{whole(recorder.packets_per_second)}</b> /s{' '}
                <b>{bits(recorder.bits_per_second)}</b></span>}</header>
            <div class="bd"><Lines label="Packets a second" missing={shares}
              series={[{ values: (found?.spans ?? []).map(({ packets }) => packets / spanS), colour: 'tcp', fill: true }]}
              ends={start === undefined || end === undefined ? [] : [start, end]} /></div>
          </div>
          <div class="card">
            <header><h2>Ring and queue</h2><span class="dim">how full, since this page was opened</span></header>
            <div class="bd"><Lines label="Ring and queue, in percent" most={100} missing={[]}
              series={[{ values: seen.value.map(([, , ring]) => 100 * ring), colour: 'tcp', fill: true },
                { values: seen.value.map(([, , , queue]) => 100 * queue), colour: 'udp', fill: false }]}
              ends={seen.value.length < 2 ? [] : [seen.value[0], seen.value.at(-1)].map((one) =>
                BigInt(one?.[0] ?? 0) * 1_000_000n)} /></div>
          </div>
        </div>
        <div class="g3">
          <div class="card"><header><h2>Disk</h2></header><div class="bd">
            <div class="big">{recorder?.disk_percent === undefined ? '–' : `${recorder.disk_percent.toFixed(0)} %`}
              <small>{recorder?.disk_free_bytes === undefined ? '' : `${bytes(recorder.disk_free_bytes)} free`}</small></div>
            <dl class="kv"><dt>packets</dt><dd>{bytes(recorder?.packet_bytes ?? kept?.wire_bytes ?? 0)}</dd>
              <dt>index</dt><dd>{bytes(kept?.index_bytes ?? 0)}</dd></dl>
          </div></div>
          <div class="card"><header><h2>Kept</h2></header><div class="bd">
            <div class="big">{first === undefined || last === undefined ? '–' : length(last - first)}
              <small>{first === undefined ? '' : `oldest packet ${parts(first).date} ${clock(first, MINUTE)}`}</small></div>
            <dl class="kv"><dt>packets</dt><dd>{whole(kept?.packets ?? 0)}</dd>
              <dt>segments</dt><dd>{whole(kept?.segments ?? 0)}</dd>
              <dt>removed so far</dt><dd>{whole(recorder?.total.removed_segments ?? 0)}</dd></dl>
          </div></div>
          <div class="card"><header><h2>Index</h2></header><div class="bd">
            <div class="big">{recorder?.index_lag_seconds === undefined ? '–' : `${recorder.index_lag_seconds.toFixed(1)} s`}
              <small>behind the newest recording</small></div>
            <dl class="kv"><dt>indexed in this run</dt><dd>{whole(recorder?.indexed_packets ?? 0)}</dd>
              <dt>waiting recordings</dt><dd>{whole(recorder?.waiting ?? 0)}</dd>
              <dt>device</dt><dd>{recorder?.device || '–'}</dd></dl>
          </div></div>
        </div>
        <div class="g2">
          <div class="card"><header><h2>Interfaces</h2></header><div class="bd scroll" tabIndex={0}>
            <table class="plain"><thead><tr><th>Name</th><th>State</th><th class="num">Received</th>
              <th class="num">Stored</th><th class="num">Lost</th></tr></thead><tbody>
              {(recorder?.sources ?? []).map((source) => {
                const gone = Object.values(source.lost).reduce((a, b) => a + b, 0);
                return (
                  <tr><td class="mono">{source.name}</td><td>{source.up ? 'up' : 'down'}</td>
                    <td class="num">{whole(source.received)}</td><td class="num">{whole(source.stored)}</td>
                    <td class={`num${gone > 0 ? ' bad' : ''}`}>{whole(gone)}</td></tr>
                );
              })}
            </tbody></table>
          </div></div>
          <div class="card"><header><h2>What is missing</h2><span class="dim">in this range</span></header>
            <div class="bd">
              {found !== null && missing.length === 0 && <p>Nothing, as far as is known.</p>}
              {missing.map((one) => <p class="ev"><i class="sw" />{missingText(one)}</p>)}
            </div></div>
        </div>
      </div>
    </div>
  );
}
