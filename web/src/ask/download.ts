/** The packets on the screen as a file; what is large becomes a job. */

import { signal } from '@preact/signals';
import { tell } from '../parts/announce';
import { Refused, hasToken, send } from '../net/server';
import { count, flows, params } from '../state/answers';
import { change } from '../state/view';
import { bytes } from '../text/numbers';
import { capture } from './commands';

/** From here on a job makes the file: the page might be closed before it is there. */
const LARGE_BYTES = 1e9;
const LARGE_PACKETS = 10_000_000;
/** What a packet has in a pcapng file beside its bytes. */
const EACH = 34;

export const busy = signal<string | null>(null);

/** How large the file is if all packets were kept whole. */
export function size(): number | undefined {
  const packets = count.value.value?.count;
  const found = flows.value;
  if (packets === undefined || found.value === null || found.number !== count.value.number) return;
  return found.value.other_packets > 0 && found.value.bytes === 0
    ? undefined : found.value.bytes + EACH * packets;
}

export async function download(
  format: 'pcapng' | 'pcap',
  reason = '',
  most = '',
): Promise<void> {
  const packets = count.peek().value?.count ?? 0;
  const isLarge = packets > LARGE_PACKETS || (size() ?? 0) > LARGE_BYTES;
  const isFew = most !== '' && Number(most) < LARGE_PACKETS / 10;
  if (isLarge && !isFew) return makeJob(format, reason, most);
  const to = capture(format, reason, most);
  const name = `packets.${format}`;
  if (!hasToken()) {
    save(to, name);
    tell(`${name} is on its way`);
    return;
  }
  // A link has no token, so that the page fetches the file itself.
  busy.value = '0 B';
  try {
    const response = await send(to);
    const parts: BlobPart[] = [];
    let sum = 0;
    const reader = response.body?.getReader();
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done) break;
      parts.push(part.value as unknown as BlobPart);
      sum += part.value.length;
      busy.value = bytes(sum);
    }
    const url = URL.createObjectURL(new Blob(parts, { type: 'application/octet-stream' }));
    save(url, name);
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (error) {
    tell(error instanceof Refused ? error.message : 'The download broke off');
  } finally {
    busy.value = null;
  }
}

export function save(to: string, name: string): void {
  const link = document.createElement('a');
  link.href = to;
  link.download = name;
  link.click();
}

async function makeJob(format: string, reason: string, most: string): Promise<void> {
  try {
    const more = { format, reason: reason || undefined, limit_packets: most || undefined };
    const body = JSON.stringify({ ...params.peek(), ...more });
    await send('/api/v1/jobs', { method: 'POST', body });
    tell('The file is large, so a job makes it');
    change({ page: 'jobs' }, 'push');
  } catch (error) {
    tell(error instanceof Refused ? error.message : 'The server does not answer');
  }
}
