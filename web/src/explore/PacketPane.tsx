import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { save } from '../ask/download';
import { add, language } from '../ask/terms';
import { Icon } from '../parts/Icon';
import { copy, tell } from '../parts/announce';
import { mayExtract } from '../state/session';
import { extent } from '../state/times';
import { change, view } from '../state/view';
import { whole } from '../text/numbers';
import { SECOND, clock, format, parse } from '../text/time';
import { Bytes } from './Bytes';
import { FieldTree } from './FieldTree';
import { packetFilter } from './flowFilter';
import { hovered, kept, packet, problem } from './packet';
import { captureOf } from './pcap';
import { closePacket, current } from './selection';

/** Whether the packet is below the list on wide windows, too: the reader's choice. */
export const below = signal(localStorage.getItem('dock') === 'below');

function dock(): void {
  below.value = !below.value;
  localStorage.setItem('dock', below.value ? 'below' : 'beside');
}

/** Asks for the packets of the same conversation. */
export function conversation(): void {
  const now = packet.peek()?.packet ?? current.peek();
  if (now === null) return;
  change({ q: packetFilter(now, language()), at: undefined, tab: 'packets' }, 'push');
}

export function copyAsFilter(): void {
  const field = hovered.peek() ?? kept.peek();
  const now = packet.peek()?.packet ?? current.peek();
  const text = field?.filter ?? (now === null ? undefined : packetFilter(now, language()));
  if (text === undefined) tell('This field is in no filter');
  else void copy(text, 'Filter');
}

export function onlyThis(excluded: boolean): void {
  const field = hovered.peek() ?? kept.peek();
  if (field?.filter === undefined) tell('Choose a field with a filter first');
  else add(field.filter, excluded, 'wireshark');
}

/** What was around a packet, whatever the filter. */
export function around(): void {
  const time = parse(packet.peek()?.packet.time ?? '');
  if (time === undefined) return;
  change({
    q: '', syntax: undefined, from: format(time - 5n * SECOND), to: format(time + 5n * SECOND),
    at: format(time), live: false,
  }, 'push');
}

export function downloadPacket(): void {
  const now = packet.peek();
  if (now?.hex === undefined) return;
  const file = captureOf(now, parse(now.packet.time) ?? 0n);
  if (file === undefined) {
    tell(`This page cannot write packets of the link ${now.link}`);
    return;
  }
  const url = URL.createObjectURL(new Blob([file as BlobPart]));
  save(url, 'packet.pcap');
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** One packet: fields, bytes, and what to do with it. */
export function PacketPane() {
  const found = packet.value;
  const field = hovered.value ?? kept.value;
  useEffect(() => {
    document.querySelector('.fd.on')?.scrollIntoView({ block: 'nearest' });
  }, [found]);
  if (view.value.p === undefined) return null;
  const time = parse(found?.packet.time ?? '');
  return (
    <section class="det" aria-label="Packet" id="packet" tabIndex={-1}>
      <div class="det-h">
        <b>Packet {found === null ? '' : whole(found.packet.number)}</b>
        {time !== undefined && <span class="dim">{clock(time, SECOND)} · {found?.packet.file}</span>}
        <span class="grow" />
        <button class="btn sq bare dockb" title="Below or beside" aria-label="Packet below or beside the list"
          onClick={dock}><Icon name="dock" /></button>
        <button class="btn sq bare" title="Close (Esc)" aria-label="Close the packet"
          onClick={closePacket}><Icon name="x" /></button>
      </div>
      {problem.value !== null && (
        <p class="none" role="alert">
          {problem.value}{extent.value === null ? '' : `. The oldest packet is of ${format(extent.value.from)}.`}
        </p>
      )}
      {found !== null && problem.value === null && (
        <>
          <div class="det-a">
            <button class="btn sm" title="F" onClick={conversation}><Icon name="flow" />Conversation</button>
            <button class="btn sm" title="C" onClick={copyAsFilter}><Icon name="copy" />Copy as filter</button>
            <button class="btn sm" title="Shift D" aria-disabled={!mayExtract.value} onClick={downloadPacket}>
              <Icon name={mayExtract.value ? 'down' : 'lock'} />This packet
            </button>
            <button class="btn sm" title="All packets around it" onClick={around}>± 5 s</button>
          </div>
          <FieldTree layers={found.layers} />
          {found.hex === undefined ? (
            <div class="lock"><Icon name="lock" /><div><b>Bytes are not shown</b>
              Your role sees the header fields above. The packet itself needs the role extract.
            </div></div>
          ) : <Bytes hex={found.hex} layers={found.layers} />}
          <div class="hex-f">
            {field !== null && (
              <>
                <span class="mono">{field.name}</span>
                <span class="dim">{field.offset === undefined || !field.length ? 'not in the bytes'
                  : field.length === 1 ? `byte ${field.offset}`
                    : `bytes ${field.offset}–${field.offset + field.length - 1}`}</span>
                <span class="grow" />
                {field.filter !== undefined && (
                  <>
                    <span class="mono dim">{field.filter}</span>
                    <button class="btn sm" aria-label={`Add to the filter: ${field.filter}`}
                      onClick={() => onlyThis(false)}><Icon name="plus" /></button>
                  </>
                )}
              </>
            )}
          </div>
        </>
      )}
    </section>
  );
}
