/** Packets as lines of JSON. */

import type { Answer, Packet } from './types';
import { type Params, address, send } from './server';

export interface End extends Answer {
  packets: number;
  stopped: boolean;
}

type Line = Packet | { end: End } | { error: string };

function take(text: string, each: (packet: Packet) => void): End | undefined {
  if (text === '') return undefined;
  const line = JSON.parse(text) as Line;
  if ('end' in line) return line.end;
  if ('error' in line) throw new Error(line.error);
  each(line);
  return undefined;
}

/** Some packets, all at once. */
export async function packets(params: Params, abort?: AbortSignal): Promise<[Packet[], End]> {
  const response = await send(address('/api/v1/search', params), { signal: abort ?? null });
  const found: Packet[] = [];
  let end: End | undefined;
  for (const line of (await response.text()).split('\n')) {
    end = take(line, (packet) => found.push(packet)) ?? end;
  }
  if (end === undefined) throw new TypeError('the answer broke off');
  return [found, end];
}
