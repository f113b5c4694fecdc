/** Terms that are added to a filter by a click. */

import { type Language, reask, view } from '../state/view';
import { guess } from './words';

/** The language that a term has to be in. */
export function language(): Language {
  const { q, syntax } = view.peek();
  return syntax ?? (q.trim() === '' ? 'pcap' : guess(q));
}

/** Numbers of ICMP and the like, for protocols whose name pcap-filter does not know. */
const PCAP_PROTOCOL: Record<string, string> = {
  icmp6: 'icmp6', 'ipv6-icmp': 'icmp6', icmpv6: 'icmp6', gre: 'ip proto 47', esp: 'ip proto 50',
  ipip: 'ip proto 4', ip: 'ip proto 4', ipv6: 'ip proto 41', lldp: 'ether proto 0x88cc',
};
const PLAIN = new Set(['tcp', 'udp', 'icmp', 'arp', 'rarp', 'sctp', 'igmp', 'ah', 'esp']);

/** The term for a value of a field of `top`; nothing if the language has none. */
export function term(field: string, value: string, to: Language = language()): string | undefined {
  const isV6 = value.includes(':');
  if (to === 'pcap') {
    switch (field) {
      case 'proto': case 'l4': case 'ip.proto': {
        const name = value.toLowerCase();
        if (PLAIN.has(name)) return name;
        if (PCAP_PROTOCOL[name] !== undefined) return PCAP_PROTOCOL[name];
        if (/^\d+$/.test(name)) return `(ip proto ${name} or ip6 proto ${name})`;
        return /^0x[\da-f]{4}$/.test(name) ? `ether proto ${name}` : undefined;
      }
      case 'src': case 'ip.src': case 'ip6.src': return `src host ${value}`;
      case 'dst': case 'ip.dst': case 'ip6.dst': return `dst host ${value}`;
      case 'addr': case 'ip.addr': case 'ip6.addr': return `host ${value}`;
      case 'port': return `port ${value}`;
      case 'port.src': return `src port ${value}`;
      case 'port.dst': return `dst port ${value}`;
      case 'tcp.port': case 'udp.port': case 'sctp.port':
        return `${field.split('.')[0]} port ${value}`;
      case 'tcp.srcport': case 'udp.srcport': return `${field.slice(0, 3)} src port ${value}`;
      case 'tcp.dstport': case 'udp.dstport': return `${field.slice(0, 3)} dst port ${value}`;
      case 'vlan': return `vlan ${value}`;
      case 'mpls': return `mpls ${value}`;
      case 'mac': return `ether host ${value}`;
      case 'eth.src': return `ether src ${value}`;
      case 'eth.dst': return `ether dst ${value}`;
      case 'frame.len': return `len == ${value}`;
      case 'ip.ttl': return `ip[8] == ${value}`;
      case 'icmp.type': return `icmp[icmptype] == ${value}`;
      case 'icmp.code': return `icmp[icmpcode] == ${value}`;
      default: return undefined;
    }
  }
  switch (field) {
    case 'proto': case 'l4': case 'ip.proto': {
      const name = value.toLowerCase();
      if (name === 'icmp6' || name === 'ipv6-icmp') return 'icmpv6';
      return PLAIN.has(name) ? name : /^\d+$/.test(name) ? `ip.proto == ${name}` : undefined;
    }
    case 'src': return `${isV6 ? 'ipv6' : 'ip'}.src == ${value}`;
    case 'dst': return `${isV6 ? 'ipv6' : 'ip'}.dst == ${value}`;
    case 'addr': return `${isV6 ? 'ipv6' : 'ip'}.addr == ${value}`;
    case 'port': return `(tcp.port == ${value} || udp.port == ${value})`;
    case 'port.src': return `(tcp.srcport == ${value} || udp.srcport == ${value})`;
    case 'port.dst': return `(tcp.dstport == ${value} || udp.dstport == ${value})`;
    case 'vlan': return `vlan.id == ${value}`;
    case 'mpls': return `mpls.label == ${value}`;
    case 'mac': return `eth.addr == ${value}`;
    case 'iface': case 'length': case 'encap': return undefined;
    default: return `${field} == ${value}`;
  }
}

const words = (to: Language) => (to === 'pcap' ? { and: ' and ', or: /\bor\b/, not: 'not ' }
  : { and: ' && ', or: /\|\||\bor\b/, not: '!' });

/** A filter with one more term, or without what has it. */
export function joined(filter: string, added: string, excluded: boolean, to: Language): string {
  const { and, or, not } = words(to);
  const isOne = !added.includes(' ') || /^\(.*\)$/.test(added);
  const denied = to === 'pcap' ? `${not}${added}` : `${not}${isOne ? added : `(${added})`}`;
  const wanted = excluded ? denied : added;
  const opposite = excluded ? added : denied;
  const now = filter.trim();
  if (now === '') return wanted;
  const parts = now.split(and);
  if (parts.includes(wanted)) return now;
  if (parts.includes(opposite)) {
    return parts.map((part) => (part === opposite ? wanted : part)).join(and);
  }
  return `${or.test(now) && !/^\([^()]*\)$/.test(now) ? `(${now})` : now}${and}${wanted}`;
}

/** Adds a term to the filter on the screen. */
export function add(added: string, excluded: boolean, to: Language = language()): void {
  reask({ q: joined(view.peek().q, added, excluded, to) });
}
