/** The row that has the cursor, and the packet that is open. */

import { signal } from '@preact/signals';
import { change, view } from '../state/view';
import type { Flow, Packet } from '../net/types';

/** Row of the cursor in the list of packets, and in that of conversations. */
export const cursor = signal(-1);
export const flowCursor = signal(-1);
/** The packet of the cursor, if it is there. */
export const current = signal<Packet | null>(null);
export const currentFlow = signal<Flow | null>(null);

export function openPacket(packet: Packet, how?: 'push' | 'replace'): void {
  if (packet.id === undefined) return;
  const isOpen = view.peek().p !== undefined;
  if (view.peek().p === packet.id) return;
  change({ p: packet.id, page: 'explore' }, how ?? (isOpen ? 'replace' : 'push'));
}

export function closePacket(): void {
  change({ p: undefined, f: undefined }, 'push');
}
