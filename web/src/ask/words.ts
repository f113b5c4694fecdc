/** The words of both filter languages, and what each part of a filter is. */

import type { Language } from '../state/view';
import { fields } from '../state/session';

/** Words of pcap-filter(7), and what they are. */
export const PCAP: [string, string][] = [
  ['host', 'an address at either end'], ['net', 'a network, as 10.1.0.0/16'],
  ['port', 'a port at either end'], ['portrange', 'ports, as 8000-8100'],
  ['src', 'only the source'], ['dst', 'only the destination'],
  ['src host', 'source address'], ['dst host', 'destination address'],
  ['src net', 'source network'], ['dst net', 'destination network'],
  ['src port', 'source port'], ['dst port', 'destination port'],
  ['and', 'both'], ['or', 'at least one'], ['not', 'the opposite'],
  ['tcp', 'protocol'], ['udp', 'protocol'], ['icmp', 'protocol'], ['icmp6', 'protocol'],
  ['ip', 'IPv4'], ['ip6', 'IPv6'], ['arp', 'protocol'], ['rarp', 'protocol'], ['sctp', 'protocol'],
  ['vlan', 'a VLAN tag; what follows looks behind it'], ['mpls', 'a label'],
  ['ether host', 'a MAC address'], ['ether src', 'source MAC address'],
  ['ether dst', 'destination MAC address'], ['ether proto', 'an EtherType'],
  ['ip proto', 'a protocol by its number'], ['less', 'at most so many bytes'],
  ['greater', 'at least so many bytes'], ['len', 'bytes on the wire'],
  ['tcp[tcpflags] & tcp-syn != 0', 'SYN'], ['tcp[tcpflags] & tcp-rst != 0', 'RST'],
  ['tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn', 'SYN without ACK'],
  ['tcp[tcpflags] & tcp-fin != 0', 'FIN'], ['icmp[icmptype] == icmp-echo', 'echo request'],
  ['broadcast', 'to all'], ['multicast', 'to many'], ['after', 'from this time on'],
  ['before', 'before this time'],
];

const JOINS = new Set(['and', 'or', 'not', '&&', '||', '!', 'in']);
const TYPES = new Set(PCAP.map(([word]) => word).filter((word) => !JOINS.has(word)));

export type Kind = 'join' | 'word' | 'value' | 'plain';

export interface Piece {
  text: string;
  at: number;
  kind: Kind;
}

/** A filter in pieces, for colours. */
export function pieces(filter: string): Piece[] {
  let at = 0;
  return filter.split(/(\s+|[()[\]{},]|&&|\|\||[!=<>]=?|&)/).flatMap((text) => {
    const piece: Piece = { text, at, kind: kindOf(text) };
    at += text.length;
    return text === '' ? [] : [piece];
  });
}

function kindOf(text: string): Kind {
  if (JOINS.has(text)) return 'join';
  if (TYPES.has(text) || /^[a-z]\w*(\.[a-z_]\w*)+$/.test(text)) return 'word';
  if (/^(\d[\w.:/-]*|[\da-f:.]*:[\da-f:./]*)$/i.test(text)) return 'value';
  return 'plain';
}

/** Protocols whose fields have a dot in Wireshark's language. */
const WIRESHARK = new Set([
  'frame', 'eth', 'vlan', 'mpls', 'arp', 'ip', 'ipv6', 'tcp', 'udp', 'sctp', 'icmp', 'icmpv6', 'tunnel',
  'inner', 'communityid',
]);

/** The language that a filter seems to be in, by the rule of the server: a word with a dot tells. */
export function guess(filter: string): Language {
  const words = filter.split(/[^\w.-]+/);
  const byNumber = words.some((word) => word === 'proto' || word === 'protochain');
  const isWireshark = words.some((word) => {
    const [protocol = '', rest] = word.split('.', 2);
    if (rest !== undefined) return WIRESHARK.has(protocol) && /^[a-z]/.test(rest);
    return word === 'communityid' || (!byNumber && (word === 'ipv6' || word === 'icmpv6'));
  });
  return isWireshark ? 'wireshark' : 'pcap';
}

/** The field of `top` whose values may stand behind some words. */
export function valuesOf(before: string): string | undefined {
  const words = before.trim().split(/[\s(!]+/);
  const last = words.at(-1) ?? '';
  const other = words.at(-2) ?? '';
  const end = (field: string) =>
    other === 'src' ? `${field === 'addr' ? 'src' : 'port.src'}`
      : other === 'dst' ? `${field === 'addr' ? 'dst' : 'port.dst'}` : field;
  if (last === 'port' || last === 'portrange') return end('port');
  if (last === 'host' || last === 'net') return other === 'ether' ? 'mac' : end('addr');
  if (last === 'src' || last === 'dst') return other === 'ether' ? `eth.${last}` : last;
  if (last === 'vlan') return 'vlan';
  if (['==', '!=', 'eq', 'ne'].includes(last)) {
    return fields.value.find((line) => line.wireshark === other)?.field;
  }
  return undefined;
}
