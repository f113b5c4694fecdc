/** Protocols in words and colours. There is no dissection: TCP, not TLS. */

import type { Packet } from '../net/types';

export const CLASSES = ['tcp', 'udp', 'icmp', 'arp', 'tun', 'oth'] as const;
export type Class = (typeof CLASSES)[number];

export const NAMES: Record<Class, string> = {
  tcp: 'TCP', udp: 'UDP', icmp: 'ICMP', arp: 'ARP', tun: 'Tunnels', oth: 'other',
};

/** The class of a protocol, by its name in `top`, in packets or in conversations. */
export function classOf(name: string): Class {
  switch (name.toLowerCase()) {
    case 'tcp': return 'tcp';
    case 'udp': return 'udp';
    case 'icmp': case 'icmp6': case 'icmpv6': case 'ipv6-icmp': return 'icmp';
    case 'arp': case 'rarp': return 'arp';
    case 'gre': case 'esp': case 'ipip': case 'ipv6': case 'ip': case 'ip 4': case 'ip 41':
    case 'ip 50': case '4': case '41': return 'tun';
    default: return 'oth';
  }
}

export function classOfPacket(packet: Packet): Class {
  return packet.tunnel ? 'tun' : classOf(packet.protocol);
}

const PORTS: Record<string, string> = {
  20: 'ftp-data', 21: 'ftp', 22: 'ssh', 23: 'telnet', 25: 'smtp', 53: 'domain', 67: 'dhcp',
  68: 'dhcp', 69: 'tftp', 80: 'http', 88: 'kerberos', 110: 'pop3', 123: 'ntp', 135: 'epmap',
  137: 'netbios-ns', 139: 'netbios-ssn', 143: 'imap', 161: 'snmp', 162: 'snmptrap', 179: 'bgp',
  389: 'ldap', 443: 'https', 445: 'microsoft-ds', 465: 'submissions', 500: 'isakmp', 514: 'syslog',
  515: 'printer', 587: 'submission', 636: 'ldaps', 853: 'domain-s', 993: 'imaps', 995: 'pop3s',
  1433: 'ms-sql', 1521: 'oracle', 1812: 'radius', 1883: 'mqtt', 2049: 'nfs', 2152: 'gtp-u',
  3128: 'squid', 3306: 'mysql', 3389: 'rdp', 4500: 'ipsec-nat-t', 4789: 'vxlan', 5060: 'sip',
  5353: 'mdns', 5432: 'postgresql', 5900: 'vnc', 6379: 'redis', 8080: 'http-alt', 9200: 'wap-wsp',
};

/** What a port is mostly for; what is spoken there, nobody has looked. */
export function portName(port: string): string | undefined {
  return PORTS[port];
}
