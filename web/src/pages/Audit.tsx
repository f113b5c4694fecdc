import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { AuditPage } from '../net/types';
import { Refused, ask, isAborted } from '../net/server';
import { bytes, whole } from '../text/numbers';

const page = signal<AuditPage | null>(null);
const problem = signal('');
const MANY = 200;

/** Who asked for what, and what was given out. */
export function Audit() {
  useEffect(() => {
    const abort = new AbortController();
    ask<AuditPage>('/api/v1/audit', { n: MANY }, abort.signal).then((found) => {
      page.value = found;
      problem.value = '';
    }).catch((error: unknown) => {
      if (!isAborted(error)) problem.value = error instanceof Refused ? error.message : 'The server does not answer.';
    });
    return () => abort.abort();
  }, []);
  const found = page.value;
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label="Audit">
      <div class="wrap">
        <div class="hd1"><h1>Audit</h1>
          {found !== null && (found.wrong === null
            ? <p id="chain">The chain holds: {whole(found.lines)} lines, the newest first.</p>
            : <p class="bad" id="chain">The chain is broken: {found.wrong}</p>)}
        </div>
        {problem.value !== '' && <p class="none" role="alert">{problem.value}</p>}
        <div class="card"><div class="bd scroll" tabIndex={0}>
          <table class="plain" id="audit">
            <thead><tr><th class="num">Line</th><th>When</th><th>Who</th><th>Role</th><th>From</th><th>What</th>
              <th>Outcome</th><th>Filter</th><th>Why</th><th class="num">Packets</th><th class="num">Bytes</th><th>SHA-256</th></tr></thead>
            <tbody>
              {found?.entries.map((one) => (
                <tr>
                  <td class="num">{whole(one.seq)}</td><td class="mono">{one.time.slice(0, 19)}Z</td>
                  <td>{one.who}</td><td>{one.role ?? ''}</td><td class="mono">{one.from ?? ''}</td><td>{one.what}</td>
                  <td class={['refused', 'failed'].includes(one.outcome) ? 'bad' : ''}>{one.outcome}</td>
                  <td class="mono">{one.question?.filter ?? ''}</td><td>{one.reason ?? ''}</td>
                  <td class="num">{one.packets === undefined ? '' : whole(one.packets)}</td>
                  <td class="num">{one.bytes === undefined ? '' : bytes(one.bytes)}</td>
                  <td class="mono" title={one.sha256}>{one.sha256?.slice(0, 12) ?? ''}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div></div>
      </div>
    </div>
  );
}
