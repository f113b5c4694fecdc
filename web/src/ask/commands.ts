/** What is on the screen, as commands for a shell. */

import { address } from '../net/server';
import { params } from '../state/answers';
import { view } from '../state/view';

/** A word as a shell takes it. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function given(): string[] {
  const { q, from, to, syntax } = params.peek();
  const words = ['-r', `${location.origin}/`];
  if (from) words.push(`--from=${String(from)}`);
  if (to) words.push(`--to=${String(to)}`);
  if (syntax) words.push(`--syntax=${syntax === 'pcap' ? 'pcap' : 'wireshark'}`);
  if (q) words.push(String(q));
  return words;
}

export function tapdex(command: string, ...more: string[]): string {
  return ['tapdex', ...command.split(' '), ...given(), ...more].map(quoted).join(' ');
}

export function curl(path: string, more: Record<string, string> = {}, ...end: string[]): string {
  const words = ['curl', '-sfG', `${location.origin}${path}`];
  for (const [name, value] of Object.entries({ ...params.peek(), ...more })) {
    if (value) words.push('--data-urlencode', `${name}=${String(value)}`);
  }
  return [...words, ...end].map(quoted).join(' ');
}

/** The commands for what is on the screen, and what each of them gives. */
export function all(mayExtract: boolean): [string, string][] {
  const { tab } = view.peek();
  const list: [string, string] = tab === 'flows'
    ? ['The conversations', tapdex('flows')] : ['The packets, as lines', tapdex('search')];
  const found: [string, string][] = [['The count', tapdex('search --count')], list];
  if (mayExtract) {
    found.push(['The capture', tapdex('extract', '-w', 'packets.pcapng')]);
    found.push(['The capture, by curl', curl('/api/v1/packets', {}, '-o', 'packets.pcapng')]);
  }
  found.push(['The count, by curl', curl('/api/v1/count')]);
  return found;
}

export function capture(format: string, reason: string, most: string): string {
  return address('/api/v1/packets', { ...params.peek(), format, reason, limit_packets: most });
}
