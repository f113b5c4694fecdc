import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { curl, tapdex } from '../ask/commands';
import type { Explained, Segments } from '../net/types';
import { Refused, ask, isAborted } from '../net/server';
import { Command } from '../parts/Command';
import { answered } from '../state/answers';
import { status } from '../state/session';
import { shown } from '../state/times';
import { bytes, counted, whole } from '../text/numbers';
import { SegmentGrid } from './SegmentGrid';

const found = signal<Explained | null>(null);
const segments = signal<Segments | null>(null);
const problem = signal('');

async function load(abort: AbortSignal): Promise<void> {
  try {
    problem.value = '';
    found.value = await ask<Explained>('/api/v1/explain', answered.peek().params, abort);
    segments.value = await ask<Segments>('/api/v1/segments', {}, abort);
  } catch (error) {
    if (isAborted(error)) return;
    problem.value = error instanceof Refused ? error.message : 'The server does not answer.';
  }
}

function Step({ number, label, more, most, kind = '' }: {
  number: number;
  label: string;
  more: string;
  most: number;
  kind?: string;
}) {
  const height = number === 0 ? 0 : 4 + 36 * (Math.log10(number + 1) / Math.log10(most + 1));
  return (
    <div>
      <div class="bar"><i class={kind} style={{ height: `${height}px` }} /></div>
      <div class="n">{whole(number)}</div><div class="l">{label}</div><div class="w">{more}</div>
    </div>
  );
}

/** How the question on the screen was answered. */
export function Explain() {
  const { number } = answered.value;
  useEffect(() => {
    if (number === 0) return;
    const abort = new AbortController();
    void load(abort.signal);
    return () => abort.abort();
  }, [number]);
  const explain = found.value?.explain;
  const all = status.value?.kept;
  if (problem.value !== '') {
    return <div class="sheet"><p class="none" role="alert">{problem.value}</p></div>;
  }
  if (explain === undefined) return <div class="sheet"><p class="none">Asking</p></div>;
  const left = explain.read > 0 ? explain.read : explain.matches;
  const everything = Math.max(1, all?.packets ?? explain.packets);
  const sentence = explain.read === 0
    ? `Of ${whole(explain.packets)} packets in the segments that were asked, columns alone found ${whole(explain.matches)}. No packet was read.`
    : `Of ${whole(explain.packets)} packets in the segments that were asked, columns left ${whole(explain.read)}. Those were read, and ${whole(explain.matches)} match in all.`;
  return (
    <div class="sheet" tabIndex={0} aria-label="How this was answered" role="region">
      <div class="wrap">
        <div class="hd1"><h1>How this was answered</h1><p id="sentence">{sentence}</p></div>
        <div class="card">
          <header><h2>From everything to the answer</h2><span class="dim">packets; heights are logarithmic</span></header>
          <div class="fun">
            <Step number={all?.packets ?? explain.packets} most={everything} label="in the archive"
              more={counted(explain.segments, 'segment')} />
            <Step number={explain.packets} most={everything} label="in segments that were asked"
              more={`${counted(explain.asked, 'segment')}; passed over: ${whole(explain.pruned_by_time)} by time, ${whole(explain.pruned_by_keys)} by values`} />
            <Step number={left} most={everything} label={explain.read > 0 ? 'left by columns, read as packets' : 'found by columns'}
              more={explain.read > 0 ? '' : 'no packet read'} kind={explain.read > 0 ? 'r' : ''} />
            <Step number={explain.matches} most={everything} label="match" more="exact, as tcpdump would say" kind="m" />
          </div>
        </div>
        <div class="g2">
          <div class="card">
            <header><h2>Conditions</h2><span class="dim">in the order of the filter</span></header>
            <div class="bd scroll" tabIndex={0}>
              {explain.terms.length === 0 ? <p>Every packet is asked for.</p> : (
                <table class="plain">
                  <thead><tr><th>Condition</th><th>Answered by</th><th class="num">Holds for</th>
                    <th class="num">Not known for</th><th class="num">Read</th></tr></thead>
                  <tbody>
                    {explain.terms.map((term) => (
                      <tr><td class="mono">{term.text}</td>
                        <td><span class="by"><i class={term.by} />{term.by}</span></td>
                        <td class="num">{whole(term.rows)}</td>
                        <td class="num dim">{whole(term.unknown)}</td>
                        <td class="num">{bytes(term.weight)}</td></tr>
                    ))}
                  </tbody>
                </table>
              )}
              <p class="dim under">Understood as <span class="mono">{explain.filter || 'every packet'}</span>,
                in the language of {explain.language === 'wireshark' ? 'Wireshark' : 'tcpdump'}.</p>
              {explain.notes.map((note) => <p class="dim under">{note}</p>)}
            </div>
          </div>
          <div class="card">
            <header><h2>Time</h2><span class="rt"><b>{(explain.seconds * 1000).toFixed(2)} ms</b></span></header>
            <dl class="kv bd">
              <dt>segments asked</dt><dd>{whole(explain.asked)}</dd>
              <dt>bitmaps and lists read, at least</dt>
              <dd>{bytes(explain.terms.reduce((sum, term) => sum + term.weight, 0))}</dd>
              <dt><i class="packets" />packets read and tested</dt><dd>{whole(explain.read)}</dd>
            </dl>
          </div>
        </div>
        <div class="g2">
          <div class="card">
            <header><h2>Segments</h2><span class="dim">a cell is a segment, in order of time</span></header>
            <div class="bd"><SegmentGrid segments={segments.value?.segments ?? []} range={shown.value}
              asked={explain.asked} read={explain.read > 0} /></div>
          </div>
          <div class="card">
            <header><h2>The same from a shell</h2></header>
            <div class="bd"><Command text={tapdex('explain')} /><Command text={curl('/api/v1/explain')} /></div>
          </div>
        </div>
      </div>
    </div>
  );
}
