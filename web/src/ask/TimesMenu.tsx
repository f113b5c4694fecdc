import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Choose } from '../parts/Choose';
import { reask } from '../state/view';
import { absolute, extent, now, setTimes, showAll, times } from '../state/times';
import { DAY, format, length, parts, setZone, zone } from '../text/time';

export const isOpen = signal(false);

const READY: [string, string | undefined, string | undefined][] = [
  ['last 5 min', '-5m', undefined], ['last 15 min', '-15m', undefined],
  ['last hour', '-1h', undefined], ['last 24 h', '-24h', undefined], ['last 7 d', '-7d', undefined],
];

/** `08:41:30 +- 2m` on the day that is shown. */
function around(text: string): { from: bigint; to: bigint } | undefined {
  const found = /^(.+?)\s*(?:\+-|\+\/-|±)\s*(\d+)\s*([smhd])$/.exec(text.trim());
  if (!found) return undefined;
  const day = absolute(times.peek().from, now()) ?? extent.peek()?.from ?? now();
  const stamp = /^\d\d:\d\d/.test(found[1] ?? '')
    ? `${parts(day).date}T${found[1]}` : (found[1] ?? '').replace(' ', 'T');
  const middle = absolute(stamp, now());
  const unit = absolute(`-${found[2]}${found[3]}`, 1n << 62n);
  if (middle === undefined || unit === undefined) return undefined;
  const room = (1n << 62n) - unit;
  return { from: middle - room, to: middle + room };
}

/** Ready-made times, and all others as text. */
export function TimesMenu() {
  const box = useRef<HTMLDivElement>(null);
  const asked = times.peek();
  const [from, setFrom] = useState(asked.from ?? '');
  const [to, setTo] = useState(asked.to ?? '');
  const [near, setNear] = useState('');
  const [wrong, setWrong] = useState('');
  const all = extent.value;
  useEffect(() => {
    box.current?.querySelector<HTMLElement>('input')?.focus();
    const outside = (event: MouseEvent) => {
      const target = event.target as Element;
      if (!box.current?.contains(target) && !target.closest('#times')) isOpen.value = false;
    };
    document.addEventListener('mousedown', outside);
    return () => document.removeEventListener('mousedown', outside);
  }, []);
  const done = () => {
    isOpen.value = false;
    document.getElementById('times')?.focus();
  };
  const set = (event: Event): void => {
    event.preventDefault();
    if (near.trim() !== '') {
      const range = around(near);
      if (range === undefined) {
        setWrong('expected a time, +- and a length, such as 08:41:30 +- 2m');
        return;
      }
      setTimes(range);
    } else {
      reask({ from: from.trim() || undefined, to: to.trim() || undefined, live: false });
    }
    done();
  };
  const day = (back: bigint): void => {
    const start = ((now() / DAY) - back) * DAY;
    setTimes({ from: start, to: start + DAY });
    done();
  };
  return (
    <div class="times" role="dialog" aria-label="Times" ref={box} onKeyDown={(event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      done();
    }}>
      <ul>
        {READY.map(([name, start, end]) => (
          <li><button onClick={() => { reask({ from: start, to: end }); done(); }}>{name}</button></li>
        ))}
        <li><button onClick={() => day(0n)}>today</button></li>
        <li><button onClick={() => day(1n)}>yesterday</button></li>
        <li><button onClick={() => { showAll(); done(); }}>
          all{all === null ? '' : `, ${length(all.to - all.from)}`}
        </button></li>
      </ul>
      <form onSubmit={set}>
        <label>From, included
          <input value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
        </label>
        <label>To, not included
          <input value={to} onInput={(event) => setTo(event.currentTarget.value)} />
        </label>
        <label>Or around
          <input value={near} placeholder="08:41:30 +- 2m" aria-describedby="times-wrong"
            onInput={(event) => { setNear(event.currentTarget.value); setWrong(''); }} />
        </label>
        <p class="bad" id="times-wrong">{wrong}</p>
        <p>
          Also: <span class="mono">-15m</span>, <span class="mono">3h ago</span>,{' '}
          <span class="mono">now</span>, 1767600000.{' '}
          {all !== null && `The archive has ${format(all.from)} to ${format(all.to - 1n)}.`}
        </p>
        <div class="row">
          <Choose label="Zone, for the whole page" small value={zone.value} set={setZone}
            of={[['UTC', 'UTC'], ['local', 'local']]} />
          <span class="grow" /><button class="btn pri">Set</button>
        </div>
      </form>
    </div>
  );
}
