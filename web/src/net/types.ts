/** What the server answers; docs/serving.md and docs/output.md describe it. */

export interface Missing {
  cause: string;
  packets: number | null;
  bytes: number | null;
  from: string | null;
  to: string | null;
  intervals: number;
  what: string;
  at_least?: number;
  ns?: number;
  node?: string;
}

/** One interval of a cause of [`Missing`]. */
export interface Interval {
  cause: string;
  from: string;
  to: string;
  packets?: number;
  node?: string;
}

export interface Share {
  node: string;
  matched: number;
  seconds: number;
  error?: string;
}

export interface Answer {
  complete: boolean;
  incomplete: Missing[];
  intervals?: Interval[];
  behind_tags?: { packets: number; exact: boolean };
  notes: string[];
  matched: number;
  /** Packets that were read to decide whether they match. */
  read: number;
  first: string | null;
  last: string | null;
  segments_read: number;
  segments: number;
  seconds: number;
  nodes?: Share[];
}

export interface Count extends Answer {
  count: number;
}

export interface TopValue {
  value: string;
  count?: number;
  bytes?: number;
  share: number;
}

export interface TopValues {
  field: string;
  values: TopValue[];
  distinct: number;
  total: number;
  /** The time was up before it was counted. */
  skipped?: boolean;
}

export interface Tops extends Answer {
  top: TopValues[];
  packets_read: number;
}

export interface Histogram extends Answer {
  span_ns: number;
  by?: 'bytes';
  spans: { time: string; packets: number; bytes?: number }[];
  stack?: { field: string; values: string[]; counts: number[][] };
}

export interface Flow {
  start: string;
  duration: number;
  protocol: string;
  client: string;
  client_port?: number;
  server: string;
  server_port?: number;
  icmp_type?: number;
  vlan?: string;
  client_packets: number;
  server_packets: number;
  client_bytes: number;
  server_bytes: number;
  client_flags?: string;
  server_flags?: string;
  state?: string;
  community_id: string;
}

export interface Flows extends Answer {
  flows: Flow[];
  conversations: number;
  packets: number;
  bytes: number;
  other_packets: number;
}

export interface Packet {
  time: string;
  src: string;
  dst: string;
  protocol: string;
  src_port?: number;
  dst_port?: number;
  length: number;
  captured: number;
  vlan?: string;
  flags?: string;
  icmp_type?: number;
  icmp_code?: number;
  fragment?: string;
  tunnel?: string;
  file: string;
  number: number;
  offset: number;
  node?: string;
  id?: string;
}

export interface Field {
  name: string;
  label: string;
  value: string;
  offset?: number;
  length?: number;
  filter?: string;
}

export interface Layer {
  name: string;
  title: string;
  summary: string;
  offset: number;
  length: number;
  cut?: boolean;
  fields: Field[];
}

export interface OnePacket {
  packet: Packet;
  link: string;
  hex?: string;
  layers: Layer[];
}

export interface Condition {
  text: string;
  by: 'columns' | 'packets' | 'partly';
  rows: number;
  unknown: number;
  weight: number;
}

export interface Explained extends Answer {
  explain: {
    filter: string;
    language: string;
    from: string | null;
    to: string | null;
    terms: Condition[];
    segments: number;
    pruned_by_time: number;
    pruned_by_keys: number;
    asked: number;
    packets: number;
    read: number;
    matches: number;
    seconds: number;
    notes: string[];
  };
}

export interface Lost {
  [stage: string]: number;
}

export interface Sums {
  packets: number;
  wire_bytes: number;
  lost: Lost;
  removed_segments: number;
  removed_packets: number;
  pauses: number;
}

export interface Recorder {
  state: string;
  pid: number;
  updated: string;
  running: boolean;
  run: Sums;
  total: Sums;
  waiting: number;
  packets_per_second: number;
  bits_per_second: number;
  sources: {
    name: string;
    up: boolean;
    received: number;
    stored: number;
    lost: Lost;
    ring_fill?: number;
    queue_fill?: number;
  }[];
  started?: string;
  device?: string;
  index_lag_seconds?: number;
  indexed_packets?: number;
  packet_bytes?: number;
  index_bytes?: number;
  disk_free_bytes?: number;
  disk_percent?: number;
}

export interface Kept {
  packets: number;
  wire_bytes: number;
  index_bytes: number;
  segments: number;
  first: string | null;
  last: string | null;
}

export interface Status {
  node: string;
  version: string;
  now: string;
  who: string;
  role: string;
  may: 'search' | 'extract' | 'admin';
  filters: string[];
  from: string | null;
  to: string | null;
  /** Whether the role sees a part of the archive only. */
  limited: boolean;
  demo: boolean;
  kept: Kept | null;
  recorder: Recorder | null;
  nodes: string[];
}

export interface FieldLine {
  field: string;
  wireshark?: string;
  pcap: string;
  about: string;
}

export interface Job {
  id: string;
  who: string;
  created: string;
  ended: string | null;
  state: 'waiting' | 'running' | 'done' | 'failed';
  error?: string;
  order: {
    question: { q?: string; from?: string; to?: string };
    format: string;
    reason?: string;
  };
  packets: number;
  bytes?: number;
  sha256?: string;
}

export interface AuditEntry {
  seq: number;
  time: string;
  who: string;
  role?: string;
  from?: string;
  what: string;
  outcome: string;
  question?: { filter?: string; from?: string; to?: string };
  reason?: string;
  packets?: number;
  bytes?: number;
  sha256?: string;
  complete?: boolean;
}

export interface AuditPage {
  entries: AuditEntry[];
  lines: number;
  /** What is wrong with the chain; null if it holds. */
  wrong: string | null;
}

export interface Segments {
  segments: {
    segment: string;
    file: string;
    packets: number;
    first: string;
    last: string;
    index_bytes: number;
  }[];
}
