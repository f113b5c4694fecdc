// Captures that are made byte by byte.

const word = (n) => Buffer.from(Uint32Array.of(n >>> 0).buffer);
const half = (n) => Buffer.from(Uint16Array.of(n).buffer);
const big = (n) => Buffer.from([n >> 8 & 255, n & 255]);

/** A UDP frame and its time. */
export function frame({ n = 0, time, payload = '' }) {
  const text = Buffer.from(payload);
  const udp = Buffer.concat([big(1024 + n % 60_000), big(53), big(8 + text.length), big(0), text]);
  const address = (last) => Buffer.from([10, 0, n >> 8 & 255, last]);
  const head = Buffer.concat([
    Buffer.from([0x45, 0]), big(20 + udp.length), big(n & 65535), Buffer.from([0x40, 0, 64, 17, 0, 0]),
    address(1 + n % 250), address(9),
  ]);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += head.readUInt16BE(at);
  while (sum > 65535) sum = (sum & 65535) + (sum >> 16);
  head.writeUInt16BE(~sum & 65535, 10);
  const ethernet = Buffer.from([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
  return { time, bytes: Buffer.concat([ethernet, head, udp]) };
}

const option = (code, bytes) =>
  Buffer.concat([half(code), half(bytes.length), bytes, Buffer.alloc((4 - bytes.length % 4) % 4)]);

function block(kind, body) {
  const length = 12 + body.length;
  return Buffer.concat([word(kind), word(length), body, word(length)]);
}

/** A pcapng capture of some frames; without its head, what may follow one. */
export function capture(frames, isWhole = true, name = 'wire0') {
  const parts = [];
  if (isWhole) {
    parts.push(block(0x0a0d0d0a, Buffer.concat([word(0x1a2b3c4d), half(1), half(0), word(-1), word(-1)])));
    const options = Buffer.concat([
      option(2, Buffer.from(name)), option(9, Buffer.from([9])), option(0, Buffer.alloc(0)),
    ]);
    parts.push(block(1, Buffer.concat([half(1), half(0), word(0), options])));
  }
  for (const { time, bytes } of frames) {
    const padding = Buffer.alloc((4 - bytes.length % 4) % 4);
    parts.push(block(6, Buffer.concat([
      word(0), word(Number(time >> 32n)), word(Number(time & 0xffffffffn)), word(bytes.length),
      word(bytes.length), bytes, padding,
    ])));
  }
  return Buffer.concat(parts);
}
