// The parts of the page that need no browser.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const SOURCE = `
  export * as numbers from './text/numbers';
  export * as time from './text/time';
  export * as utf8 from './text/utf8';
  export * as words from './ask/words';
  export * as terms from './ask/terms';
  export * as view from './state/view';
  export * as commands from './ask/commands';
  export * as bars from './explore/bars';
  export * as flowFilter from './explore/flowFilter';
`;
const folder = mkdtempSync(join(tmpdir(), 'tapdex-unit-'));
let page;

before(async () => {
  const kept = new Map();
  const store = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  Object.assign(globalThis, {
    localStorage: store, sessionStorage: store, addEventListener() {},
    location: new URL('http://127.0.0.1:8417/explore'), history: { pushState() {}, replaceState() {} },
    matchMedia: () => ({ matches: false }), document: { addEventListener() {} }, window: globalThis,
  });
  const outfile = join(folder, 'parts.mjs');
  const resolveDir = fileURLToPath(new URL('../src', import.meta.url));
  await build({
    stdin: { contents: SOURCE, resolveDir, loader: 'ts' }, bundle: true, format: 'esm', outfile,
    jsx: 'automatic', jsxImportSource: 'preact', logLevel: 'error',
  });
  page = await import(outfile);
});
after(() => rmSync(folder, { recursive: true, force: true }));

test('numbers are short in panels and whole in counts', () => {
  const { whole, short, bytes, bits } = page.numbers;
  assert.equal(whole(2417635), '2,417,635');
  assert.deepEqual([9999, 10000, 391822, 999960, 1852418, 2.4e9].map(short),
    ['9,999', '10 k', '392 k', '1.00 M', '1.85 M', '2.40 G']);
  assert.deepEqual([0, 999, 1000, 1.62e9].map(bytes), ['0 B', '999 B', '1.0 kB', '1.62 GB']);
  assert.equal(bits(2.61e9), '2.61 Gb/s');
  assert.deepEqual([0, 800e3, 1.6e6, 3e9, 1.25e9].map(page.numbers.axisBytes), ['0 B', '800 kB', '1.6 MB', '3 GB', '1.25 GB']);
  assert.deepEqual([0.5, 600, 30_000, 1.5e6].map(page.numbers.axisShort), ['0.5', '600', '30 k', '1.5 M']);
});

test('times keep their nanoseconds', () => {
  const { parse, format, length, clock, step } = page.time;
  for (const text of ['2026-01-05T08:00:00Z', '2026-01-05T08:00:00.000000072Z', '1970-01-01T00:00:00.5Z']) {
    assert.equal(format(parse(text)), text);
  }
  assert.equal(parse('soon'), undefined);
  const ns = parse('2026-01-05T08:41:30.042007Z');
  assert.equal(clock(ns, 60_000_000_000n), '08:41');
  assert.equal(clock(ns, 1_000n), '08:41:30.042007');
  assert.equal(length(198_000_000_000n), '3 min 18 s');
  assert.equal(length(705_600_000_000_000n), '8 d 4 h');
  assert.equal(length(1_500_000n), '1.5 ms');
  assert.equal(step(3_600_000_000_000n, 120), 30_000_000_000n);
});

test('places in bytes become places in characters', () => {
  const { characters } = page.utf8;
  assert.equal(characters('hots', 0), 0);
  assert.equal(characters('"é" hots', 5), 4);
  assert.equal(characters('"\u{1f600}" hots', 7), 5);
  assert.equal(characters('abc', 99), 3);
});

test('the language of a filter is guessed', () => {
  const { guess } = page.words;
  for (const [text, language] of [
    ['net 10.1.0.0/16 and not port 22', 'pcap'], ['tcp[tcpflags] & tcp-rst != 0', 'pcap'],
    ['tcp[20:4] = 0x47455420', 'pcap'], ['ip.addr == 10.0.0.1', 'wireshark'],
    ['tcp.port in {80, 443}', 'wireshark'], ['tcp && !(tcp.port == 22)', 'wireshark'], ['', 'pcap'],
    ['ip proto icmpv6', 'pcap'], ['host www.example.com', 'pcap'],
    ['tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn', 'pcap'],
  ]) assert.equal(guess(text), language, text);
});

test('terms are added once, and replace their opposite', () => {
  const { joined, term } = page.terms;
  assert.equal(term('src', '10.1.4.23', 'pcap'), 'src host 10.1.4.23');
  assert.equal(term('dst', '2001:db8::1', 'wireshark'), 'ipv6.dst == 2001:db8::1');
  assert.equal(term('proto', 'icmp6', 'wireshark'), 'icmpv6');
  assert.equal(term('iface', 'eth0', 'pcap'), undefined);
  const add = (filter, excluded = false) => joined(filter, 'port 22', excluded, 'pcap');
  assert.equal(add(''), 'port 22');
  assert.equal(add('tcp'), 'tcp and port 22');
  assert.equal(add('tcp and port 22'), 'tcp and port 22');
  assert.equal(add('tcp and port 22', true), 'tcp and not port 22');
  assert.equal(add('tcp or udp'), '(tcp or udp) and port 22');
  assert.equal(joined('tcp', 'tcp.port == 22', true, 'wireshark'), 'tcp && !(tcp.port == 22)');
});

test('an address has all of the state, and nothing that is as at the start', () => {
  const { read, write } = page.view;
  const text = '/explore?q=net+10.1.0.0/16+and+not+port+22&from=2026-01-05T08:00:00Z'
    + '&to=2026-01-05T09:00:00Z&tab=flows&p=a.pcap-0000:86402';
  assert.equal(write(read('/explore', text.slice(8))), text);
  assert.equal(write(read('/', '')), '/explore');
  const bracket = write({ ...read('/', ''), q: "tcp[13] & (2|4) == 2 and 'x'" });
  assert.doesNotMatch(bracket, /[()'|]/);
  assert.equal(read('/explore', bracket.slice(8)).q, "tcp[13] & (2|4) == 2 and 'x'");
  // What makes no sense is as at the start.
  assert.equal(write(read('/nowhere', '?tab=x&by=y&sort=z&syntax=sql&live=2')), '/explore');
});

test('words of a shell are quoted', () => {
  const { quoted } = page.commands;
  assert.equal(quoted('tcp'), 'tcp');
  assert.equal(quoted("it's; rm -r $HOME"), "'it'\\''s; rm -r $HOME'");
});

test('bars add up, and small ones have room', () => {
  const found = {
    span_ns: 1e9, spans: [{ time: '2026-01-05T08:00:00Z', packets: 10 }, { time: '2026-01-05T08:00:01Z', packets: 4 }],
    stack: { field: 'proto', values: ['tcp', 'icmp6'], counts: [[6, 1], [1, 0]] },
  };
  const bars = page.bars.bars(found);
  const by = Object.fromEntries(bars.series.map(({ name, counts }) => [name, counts]));
  assert.deepEqual([by.TCP, by.ICMP, by.other], [[6, 1], [1, 0], [3, 3]]);
  const [top] = page.bars.edges(bars);
  assert.deepEqual(top.edge, [10, 4]);
});

test('a conversation is asked for with both ends', () => {
  const { flowFilter } = page.flowFilter;
  const flow = { protocol: 'tcp', client: '10.0.0.1', client_port: 5, server: '10.0.0.2', server_port: 80 };
  assert.equal(flowFilter(flow, 'pcap'), 'host 10.0.0.1 and host 10.0.0.2 and tcp port 5 and tcp port 80');
  assert.equal(flowFilter({ ...flow, vlan: '7' }, 'pcap').slice(0, 11), 'vlan 7 and ');
});
