import type { Interval, Packet } from '../net/types';
import { parse, parts } from '../text/time';
import { whole } from '../text/numbers';
import { classOfPacket } from './protocols';

const FLAG: Record<string, string> = {
  F: 'FIN', S: 'SYN', R: 'RST', P: 'PSH', A: 'ACK', U: 'URG', E: 'ECE', C: 'CWR',
};

const KINDS: Record<string, string> = {
  'ICMP 0': 'echo reply', 'ICMP 3': 'unreachable', 'ICMP 4': 'source quench', 'ICMP 5': 'redirect',
  'ICMP 8': 'echo request', 'ICMP 11': 'time exceeded', 'ICMP 12': 'parameter problem',
  'ICMPv6 1': 'unreachable', 'ICMPv6 2': 'packet too big', 'ICMPv6 3': 'time exceeded',
  'ICMPv6 128': 'echo request', 'ICMPv6 129': 'echo reply', 'ICMPv6 133': 'router solicitation',
  'ICMPv6 134': 'router advertisement', 'ICMPv6 135': 'neighbour solicitation',
  'ICMPv6 136': 'neighbour advertisement',
};

/** The name of a type of ICMP, or its number. */
export function icmpText(packet: Packet): string {
  const { protocol, icmp_type: type, icmp_code: code } = packet;
  if (type === undefined) return '';
  const name = KINDS[`${protocol} ${type}`] ?? `type ${type}`;
  return code ? `${name}, code ${code}` : name;
}

export function Address({ address, port }: { address: string; port?: number }) {
  return (
    <span class="ac"><span class="ad">{address}</span>
      {port !== undefined && <span class="po">.{port}</span>}</span>
  );
}

/** What the header says beside addresses and protocol. */
function Header({ packet }: { packet: Packet }) {
  const flags = [...(packet.flags ?? '')];
  return (
    <>
      {packet.vlan && <span class="fl">vlan {packet.vlan}</span>}
      {flags.map((flag) => (
        <span class={`fl${flag === 'S' ? ' s' : flag === 'R' ? ' x' : flag === 'F' ? ' f' : ''}`}>
          {FLAG[flag] ?? flag}
        </span>
      ))}
      {icmpText(packet)}
      {packet.fragment && <span class="fl f">{packet.fragment} fragment</span>}
      {packet.tunnel}
    </>
  );
}

/** What is missing just before a packet, in a few words. */
function Missing({ intervals }: { intervals: Interval[] }) {
  return (
    <>
      {intervals.map(({ cause, packets, from, to }) => (
        <span class="lostrow" title={`${from} to ${to}`}>
          <i class="sw" aria-hidden="true" />
          {cause === 'lost' ? `${packets === undefined ? 'some' : whole(packets)} lost before`
            : cause === 'not_recorded' ? 'nothing recorded before' : `${cause} before`}
        </span>
      ))}
    </>
  );
}

/** A packet on one line. */
export function PacketRow({ n, packet, missing, isSelected, open }: {
  n: number;
  packet: Packet | undefined;
  /** Intervals between the packet before and this one. */
  missing: Interval[];
  isSelected: boolean;
  open: (packet: Packet, n: number) => void;
}) {
  const common = { role: 'row' as const, id: `row-${n}`, 'aria-rowindex': n + 2, 'aria-selected': isSelected };
  if (packet === undefined) {
    return <div {...common} class="vr wait"><span role="gridcell" class="ghost">&nbsp;</span></div>;
  }
  const { clock, fraction } = parts(parse(packet.time) ?? 0n);
  return (
    <div {...common} class={`vr e-${classOfPacket(packet)}${missing.length > 0 ? ' brk' : ''}`} data-id={packet.id}
      onClick={() => { if (String(getSelection()) === '') open(packet, n); }}>
      <span role="gridcell"><span class="t1">{clock}</span>.{fraction}</span>
      <span role="gridcell" data-term="src" data-value={packet.src}>
        <Address address={packet.src} port={packet.src_port} /></span>
      <span role="gridcell" data-term="dst" data-value={packet.dst}>
        <Address address={packet.dst} port={packet.dst_port} /></span>
      <span role="gridcell" class="pr h2">{packet.protocol}</span>
      <span role="gridcell" class="num">{whole(packet.length)}</span>
      <span role="gridcell" class="in h2"><Missing intervals={missing} /><Header packet={packet} /></span>
    </div>
  );
}
