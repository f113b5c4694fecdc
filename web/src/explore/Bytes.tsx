import { useMemo } from 'preact/hooks';
import type { Layer } from '../net/types';
import { fieldAt, hovered, kept } from './packet';
import { keep } from './FieldTree';

const LINE = 16;
/** Bytes that are drawn; a packet may have 64 KiB and more. */
const MOST = 4096;

function unhex(hex: string): number[] {
  const found: number[] = [];
  for (let at = 0; at < hex.length && found.length < MOST; at += 2) {
    found.push(Number.parseInt(hex.slice(at, at + 2), 16));
  }
  return found;
}

/** The bytes of a packet: the layer underlined, the field lit, payload grey. */
export function Bytes({ hex, layers }: { hex: string; layers: Layer[] }) {
  const bytes = useMemo(() => unhex(hex), [hex]);
  const field = hovered.value ?? kept.value;
  const layer = field === null ? undefined : layers.find(({ fields }) => fields.includes(field));
  const payload = layers.find(({ name }) => name === 'data')?.offset ?? bytes.length;
  const isIn = (at: number, from?: number, length?: number) =>
    from !== undefined && length !== undefined && at >= from && at < from + length;
  const kind = (at: number): string => {
    const lit = field !== null && isIn(at, field.offset, field.length);
    const under = layer !== undefined && layer.name !== 'frame' && isIn(at, layer.offset, layer.length);
    return `${lit ? 'on' : under ? 'un' : ''}${at >= payload ? ' pl' : ''}`;
  };
  const at = (event: Event): number | undefined => {
    const place = (event.target as HTMLElement).dataset.at;
    return place === undefined ? undefined : Number(place);
  };
  const lines = [];
  for (let from = 0; from < bytes.length; from += LINE) {
    const line = bytes.slice(from, from + LINE);
    lines.push(
      <div class="hx">
        <span class="o">{from.toString(16).padStart(4, '0')}</span>
        <span class="bs">
          {line.map((byte, n) => (
            <span class={kind(from + n)} data-at={from + n}>{byte.toString(16).padStart(2, '0')}</span>
          ))}
        </span>
        <span class="as">
          {line.map((byte, n) => {
            const isText = byte > 31 && byte < 127;
            return (
              <span class={`${kind(from + n)}${isText ? '' : ' np'}`} data-at={from + n}>
                {isText ? String.fromCharCode(byte) : '·'}
              </span>
            );
          })}
        </span>
      </div>,
    );
  }
  return (
    <div class="hex" id="bytes" tabIndex={0} role="group" aria-label="Bytes"
      onMouseOver={(event) => {
        const place = at(event);
        if (place !== undefined) hovered.value = fieldAt(layers, place) ?? null;
      }}
      onMouseLeave={() => { hovered.value = null; }}
      onClick={(event) => {
        const place = at(event);
        const found = place === undefined ? undefined : fieldAt(layers, place);
        if (found) keep(found);
      }}>
      {lines}
      {hex.length / 2 > MOST && <p class="others">the first {MOST} of {hex.length / 2} bytes</p>}
    </div>
  );
}
