import { useEffect, useState } from 'preact/hooks';
import { away } from '../net/away';
import { status } from '../state/session';
import { change } from '../state/view';
import { bits, bytes, whole } from '../text/numbers';
import { clock, length, parse, zone } from '../text/time';

function Away() {
  const now = away.value;
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  if (now === null) return null;
  const since = BigInt(now.since) * 1_000_000n;
  const wait = Math.max(0, Math.ceil((now.next - Date.now()) / 1000));
  return (
    <>
      <span class="loss" role="alert"><i class="dot off" />
        <b>The server does not answer.</b></span>
      <span>What you see was loaded at {clock(since, 1_000_000_000n)} {zone.value}.</span>
      <span>Trying again in {wait} s.</span>
    </>
  );
}

/** The recorder in one line, on every page. */
export function Strip() {
  const now = status.value;
  const recorder = now?.recorder ?? null;
  const lost = recorder === null ? 0 : Object.values(recorder.run.lost).reduce((a, b) => a + b, 0);
  const oldest = parse(now?.kept?.first ?? '');
  const most = (of: 'ring_fill' | 'queue_fill') =>
    Math.max(0, ...(recorder?.sources ?? []).map((source) => source[of] ?? 0));
  const isOn = recorder?.running === true;
  return (
    <footer class="strip" aria-label="Recorder" id="strip"
      onDblClick={() => change({ page: 'recorder' }, 'push')}>
      {away.value !== null ? <Away /> : now === null ? <span>Loading</span> : (
        <>
          {isOn ? (
            <>
              <span><i class="dot" /><b>{recorder.state === 'paused' ? 'Paused, disk full' : 'Recording'}</b>{' '}
                {recorder.sources.map(({ name }) => name).join(', ')}</span>
              <span><b>{whole(recorder.packets_per_second)}</b> packets/s</span>
              <span><b>{bits(recorder.bits_per_second)}</b></span>
              <span class={lost > 0 ? 'loss' : ''}>lost <b>{whole(lost)}</b> in this run</span>
              <span class="opt">ring <b>{Math.round(100 * most('ring_fill'))} %</b></span>
              {recorder.disk_percent !== undefined && (
                <span>disk <b>{Math.round(recorder.disk_percent)} %</b></span>
              )}
              {oldest !== undefined && (
                <span class="opt">oldest packet <b>
                  {length(BigInt(Date.now()) * 1_000_000n - oldest)}</b> ago</span>
              )}
              {recorder.index_lag_seconds !== undefined && (
                <span class="opt">index <b>{recorder.index_lag_seconds.toFixed(1)} s</b> behind</span>
              )}
              {recorder.device && <span class="opt">device <b>{recorder.device}</b></span>}
            </>
          ) : (
            <>
              <span><i class="dot idle" />
                {now.limited ? 'What the recorder does is not shown to your role'
                  : now.nodes.length > 0 ? `${now.nodes.length} places answer as one`
                  : recorder === null ? 'Not recording: this archive was made from files'
                  : `Not recording: the recorder has ${recorder.state === 'killed' ? 'been killed' : 'ended'}`}</span>
              {now.kept !== null && (
                <>
                  <span>{whole(now.kept.packets)} packets</span>
                  <span>{bytes(now.kept.wire_bytes)}</span>
                  <span class="opt">index {bytes(now.kept.index_bytes)}</span>
                </>
              )}
            </>
          )}
          <span class="grow" />
          <span class="opt">tapdex {now.version}</span>
          <span><kbd>?</kbd> keys</span>
        </>
      )}
    </footer>
  );
}
