/** One packet as a pcap file, made from the bytes that are on the screen. */

import type { OnePacket } from '../net/types';
import { type Ns, SECOND } from '../text/time';

/** Numbers of links, by their names. */
const LINKS: Record<string, number> = {
  null: 0, ethernet: 1, raw: 101, loop: 108, 'linux-sll': 113, ipv4: 228, ipv6: 229, 'linux-sll2': 276,
};

export function captureOf({ hex = '', link, packet }: OnePacket, time: Ns): Uint8Array | undefined {
  const number = LINKS[link] ?? Number(/^link type (\d+)$/.exec(link)?.[1] ?? Number.NaN);
  if (Number.isNaN(number)) return undefined;
  const length = hex.length / 2;
  const file = new Uint8Array(40 + length);
  const at = new DataView(file.buffer);
  // The magic number of nanoseconds.
  [0xa1b23c4d, 0x00040002, 0, 0, 262_144, number].forEach((word, n) => at.setUint32(4 * n, word, true));
  const record = [Number(time / SECOND), Number(time % SECOND), length, packet.length];
  record.forEach((word, n) => at.setUint32(24 + 4 * n, word, true));
  for (let n = 0; n < length; n += 1) file[40 + n] = Number.parseInt(hex.slice(2 * n, 2 * n + 2), 16);
  return file;
}
