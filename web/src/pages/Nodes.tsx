import { count } from '../state/answers';
import { status } from '../state/session';
import { whole } from '../text/numbers';

/** The places that answer as one: whether they do, and their share of the answer on the screen. */
export function Nodes() {
  const answer = count.value.value;
  const shares = answer?.nodes ?? [];
  const names = shares.length > 0 ? [] : status.value?.nodes ?? [];
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label="Nodes">
      <div class="wrap">
        <div class="hd1"><h1>Nodes</h1><p>The places that answer as one archive; numbers are of the question on the screen.</p></div>
        <div class="card"><div class="bd scroll" tabIndex={0}>
          <table class="plain" id="nodes">
            <thead><tr><th>Node</th><th>Answers</th><th class="num">Packets</th><th class="num">Share</th><th class="num">Time</th><th>Missing</th></tr></thead>
            <tbody>
              {shares.map((one) => (
                <tr>
                  <td class="mono">{one.node}</td>
                  <td class={one.error === undefined ? '' : 'bad'}>{one.error ?? 'yes'}</td>
                  <td class="num">{whole(one.matched)}</td>
                  <td class="num">{(100 * one.matched / Math.max(1, answer?.matched ?? 1)).toFixed(1)} %</td>
                  <td class="num">{(1000 * one.seconds).toFixed(1)} ms</td>
                  <td>{(answer?.incomplete ?? []).filter(({ node }) => node === one.node).map(({ cause }) => cause).join(', ')}</td>
                </tr>
              ))}
              {names.map((name) => <tr><td class="mono">{name}</td><td>not asked yet</td><td /><td /><td /><td /></tr>)}
            </tbody>
          </table>
        </div></div>
      </div>
    </div>
  );
}
