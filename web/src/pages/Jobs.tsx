import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { save } from '../ask/download';
import type { Job } from '../net/types';
import { Refused, ask, hasToken, isAborted, send } from '../net/server';
import { Icon } from '../parts/Icon';
import { tell } from '../parts/announce';
import { bytes, whole } from '../text/numbers';

const jobs = signal<Job[] | null>(null);
const problem = signal('');

async function load(abort?: AbortSignal): Promise<void> {
  try {
    const found = await ask<Job[] | { jobs: Job[] }>('/api/v1/jobs', {}, abort);
    jobs.value = Array.isArray(found) ? found : found.jobs;
    problem.value = '';
  } catch (error) {
    if (!isAborted(error)) problem.value = error instanceof Refused ? error.message : 'The server does not answer.';
  }
}

async function remove(id: string): Promise<void> {
  try {
    await send(`/api/v1/jobs/${id}`, { method: 'DELETE' });
    tell('The job is gone');
  } catch (error) {
    tell(error instanceof Refused ? error.message : 'The server does not answer');
  }
  await load();
}

async function fetchResult(job: Job): Promise<void> {
  const name = `${job.id.slice(0, 8)}.${job.order.format}`;
  const to = `/api/v1/jobs/${job.id}/result`;
  if (!hasToken()) return save(to, name);
  try {
    const url = URL.createObjectURL(await (await send(to)).blob());
    save(url, name);
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (error) {
    tell(error instanceof Refused ? error.message : 'The download broke off');
  }
}

/** Extracts that the server makes and keeps. */
export function Jobs() {
  useEffect(() => {
    const abort = new AbortController();
    void load(abort.signal);
    const timer = setInterval(() => { if (!document.hidden) void load(abort.signal); }, 2000);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, []);
  const all = jobs.value ?? [];
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label="Jobs">
      <div class="wrap">
        <div class="hd1"><h1>Jobs</h1><p>Extracts that take long. The server makes them, and keeps them for a while.</p></div>
        {problem.value !== '' && <p class="none" role="alert">{problem.value}</p>}
        <div class="card"><div class="bd scroll" tabIndex={0}>
          <table class="plain" id="jobs">
            <thead><tr><th>Made</th><th>By</th><th>Filter</th><th>Times</th><th>Why</th><th>State</th>
              <th class="num">Packets</th><th class="num">Size</th><th>SHA-256</th><th>Do</th></tr></thead>
            <tbody>
              {all.map((job) => (
                <tr>
                  <td class="mono">{job.created.slice(0, 19)}Z</td><td>{job.who}</td>
                  <td class="mono">{job.order.question.q || 'every packet'}</td>
                  <td class="mono">{[job.order.question.from?.slice(0, 19), job.order.question.to?.slice(0, 19)].filter(Boolean).join(' – ')}</td>
                  <td>{job.order.reason ?? ''}</td>
                  <td class={job.state === 'failed' ? 'bad' : ''} title={job.error}>{job.state}</td>
                  <td class="num">{whole(job.packets)}</td>
                  <td class="num">{job.bytes === undefined ? '' : bytes(job.bytes)}</td>
                  <td class="mono" title={job.sha256}>{job.sha256?.slice(0, 12) ?? ''}</td>
                  <td><span class="row">
                    {job.state === 'done' && (
                      <button class="btn sm" onClick={() => void fetchResult(job)}><Icon name="down" />Download</button>
                    )}
                    <button class="btn sm" aria-label={`Delete the job of ${job.created}`} onClick={() => void remove(job.id)}>Delete</button>
                  </span></td>
                </tr>
              ))}
            </tbody>
          </table>
          {jobs.value !== null && all.length === 0 && <p class="under">There are no jobs. A download of over 1 GB becomes one.</p>}
        </div></div>
      </div>
    </div>
  );
}
