import { add, language, term } from '../ask/terms';
import type { TopValue, TopValues } from '../net/types';
import { Icon } from '../parts/Icon';
import { tell } from '../parts/announce';
import { view } from '../state/view';
import { bytes, percent, short, whole } from '../text/numbers';
import { classOf, portName } from './protocols';

const TITLES: Record<string, string> = {
  proto: 'Protocols', src: 'Sources', dst: 'Destinations', addr: 'Addresses', port: 'Ports',
  'port.dst': 'Destination ports', 'port.src': 'Source ports', iface: 'Interfaces', vlan: 'VLANs',
  mac: 'MAC addresses', 'ip.ttl': 'Time to live',
};

const PROTOCOL_FIELDS = new Set(['proto', 'l4', 'ip.proto', 'inner.l4']);

function choose(field: string, value: string, excluded: boolean): void {
  const added = term(field, value);
  if (added === undefined) {
    tell(`The language of the filter has no word for ${field} ${value}`);
    return;
  }
  add(added, excluded, language());
}

/** The top values of a field. */
export function TopPanel({ field, values, busy, remove }: {
  field: string;
  values: TopValues | undefined;
  busy: boolean;
  remove: (() => void) | undefined;
}) {
  const number = (one: TopValue) => one.bytes ?? one.count ?? 0;
  const most = values?.values[0];
  const rest = values === undefined ? 0
    : values.total - values.values.reduce((sum, one) => sum + number(one), 0);
  const others = (values?.distinct ?? 0) - (values?.values.length ?? 0);
  return (
    <section class="panel" aria-label={TITLES[field] ?? field}>
      <h2>
        {TITLES[field] ?? field}<span class="mono">{field}</span>
        <span class="c">{values === undefined ? '' : whole(values.distinct)}</span>
        {remove !== undefined && (
          <button class="bare" aria-label={`Remove ${field}`} onClick={remove}><Icon name="x" /></button>
        )}
      </h2>
      {values?.skipped && <p class="others">not counted: it would take too long</p>}
      {values !== undefined && !values.skipped && values.values.length === 0 && (
        <p class="others">nothing to count</p>
      )}
      {values === undefined && !busy && <p class="others">not counted</p>}
      {values?.values.map((one) => (
        <TopRow field={field} one={one} number={number(one)}
          share={most === undefined ? 0 : number(one) / Math.max(1, number(most))} />
      ))}
      {others > 0 && values !== undefined && (
        <p class="others"><span>{whole(others)} others</span>
          <span>{percent(rest / Math.max(1, values.total))}</span></p>
      )}
    </section>
  );
}

function TopRow({ field, one, number, share }: {
  field: string;
  one: TopValue;
  number: number;
  share: number;
}) {
  const isBytes = view.value.by === 'bytes';
  const amount = isBytes ? bytes(number) : short(number);
  const isProtocol = PROTOCOL_FIELDS.has(field);
  const name = field.includes('port') ? portName(one.value) : undefined;
  const text = isProtocol ? one.value.toUpperCase() : one.value === '' ? '(none)' : one.value;
  const label = `${text}${name === undefined ? '' : ` ${name}`}, ${isBytes ? amount : whole(number)}, ${percent(one.share)}`;
  return (
    <div class="tv" data-value={one.value}>
      <i class={`b${isProtocol ? ` c-${classOf(one.value)}` : ''}`} style={{ width: `calc((100% - 12px) * ${share})` }} />
      <button
        class="v" aria-label={`Only ${label}`} title={`${text}: ${whole(number)}`}
        onClick={(event) => choose(field, one.value, event.altKey)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && event.shiftKey) {
            event.preventDefault();
            choose(field, one.value, true);
          }
        }}
      >
        {isProtocol && <i class={`key k-${classOf(one.value)}`} />}{text}
        {name !== undefined && <small> {name}</small>}
      </button>
      <span class="c">{amount}</span><span class="p">{percent(one.share)}</span>
      <span class="act">
        <button aria-label={`Only ${text}`} title="Only this" tabIndex={-1}
          onClick={() => choose(field, one.value, false)}><Icon name="plus" /></button>
        <button aria-label={`Without ${text}`} title="Without this (Alt click)"
          onClick={() => choose(field, one.value, true)}><Icon name="minus" /></button>
      </span>
    </div>
  );
}
