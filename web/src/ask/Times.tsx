import { Icon } from '../parts/Icon';
import { wrong } from '../state/answers';
import { isRecording, status } from '../state/session';
import { setLive, shown, times } from '../state/times';
import { view } from '../state/view';
import { SECOND, clock, parts, zone } from '../text/time';
import { TimesMenu, isOpen } from './TimesMenu';

function text(): string {
  const { from, to } = times.value;
  const range = shown.value;
  const ago = /^-(\d+)([smhdw])$/.exec(from ?? '');
  if (ago && to === undefined) {
    const unit = { s: 's', m: 'min', h: 'h', d: 'd', w: 'weeks' }[ago[2] as 's'];
    return `last ${ago[1]} ${unit}${view.value.live ? ', following' : ''}`;
  }
  if (range === null) return [from ?? 'start', to ?? 'end'].join(' to ');
  const [a, b] = [parts(range.from), parts(range.to)];
  const step = range.to - range.from < 10n * SECOND ? 1_000_000n : SECOND;
  const end = `${a.date === b.date ? '' : `${b.date} `}${clock(range.to, step)}`;
  return `${a.date} ${clock(range.from, step)} – ${end}`;
}

/** The times that are asked about, and Live. */
export function Times() {
  const { live } = view.value;
  const may = isRecording.value;
  const isBad = wrong.value !== null && /^(from|to) |no packet is from/.test(wrong.value.message);
  return (
    <>
      <div class="timesbox">
        <button class={`btn${isBad ? ' bad' : ''}`} id="times" title="Times (T)" aria-haspopup="dialog"
          aria-expanded={isOpen.value} onClick={() => {
            // Who chooses times does not want them to move.
            if (live) setLive(false);
            isOpen.value = !isOpen.value;
          }}>
          <Icon name="clock" /><span class="mono">{text()}</span>
          <span class="dim">{zone.value === 'UTC' ? 'UTC' : 'local'}</span><Icon name="below" />
        </button>
        {isOpen.value && <TimesMenu />}
      </div>
      <button class="btn" id="live" aria-pressed={live} aria-disabled={!may && !live}
        title={may ? 'Follow what is being recorded (L)'
          : status.value === null ? '' : 'Nothing is being recorded'}
        onClick={() => { if (may || live) setLive(!live); }}>
        {live ? <i class="dot" /> : <Icon name="live" />}{live ? 'Pause' : 'Live'}
      </button>
    </>
  );
}
