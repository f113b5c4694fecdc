/** Filters for whole conversations, of both directions. */

import type { Packet } from '../net/types';
import type { Language } from '../state/view';

interface Ends {
  protocol: string;
  client: string;
  client_port?: number;
  server: string;
  server_port?: number;
  vlan?: string;
}

const PROTOCOLS = new Set(['tcp', 'udp', 'sctp', 'icmp', 'arp']);

export function flowFilter(flow: Ends, language: Language): string {
  const protocol = flow.protocol.toLowerCase();
  const [a, b] = [flow.client, flow.server];
  const hasPorts = flow.client_port !== undefined && flow.server_port !== undefined;
  const isMac = (address: string) => /^([\da-f]{2}:){5}[\da-f]{2}$/.test(address);
  if (language === 'wireshark') {
    const ip = isMac(a) ? 'eth' : a.includes(':') ? 'ipv6' : 'ip';
    const terms = [`${ip}.addr == ${a}`, `${ip}.addr == ${b}`];
    if (hasPorts) {
      terms.push(`${protocol}.port == ${flow.client_port}`, `${protocol}.port == ${flow.server_port}`);
    } else if (PROTOCOLS.has(protocol)) terms.push(protocol);
    return terms.join(' && ');
  }
  const host = isMac(a) ? 'ether host' : 'host';
  const terms = [`${host} ${a}`, `${host} ${b}`];
  if (hasPorts) {
    terms.push(`${protocol} port ${flow.client_port}`, `${protocol} port ${flow.server_port}`);
  } else if (PROTOCOLS.has(protocol)) terms.push(protocol);
  else if (protocol === 'icmpv6' || protocol === 'icmp6') terms.push('icmp6');
  const tags = (flow.vlan ?? '').split('.').filter((tag) => tag !== '');
  return [...tags.map((tag) => `vlan ${tag}`), ...terms].join(' and ');
}

export function packetFilter(packet: Packet, language: Language): string {
  return flowFilter({
    protocol: packet.protocol, client: packet.src, client_port: packet.src_port,
    server: packet.dst, server_port: packet.dst_port, vlan: packet.vlan,
  }, language);
}

