import { copy } from '../parts/announce';
import { show } from '../parts/Dialog';
import { Icon } from '../parts/Icon';
import { count, wrong } from '../state/answers';
import { mayExtract, status } from '../state/session';
import { bytes } from '../text/numbers';
import { busy, download, size } from './download';

/** What is on the screen, to take with you. */
export function TakeAway() {
  const isWrong = wrong.value !== null;
  const may = mayExtract.value || status.value === null;
  const packets = count.value.value?.count ?? 0;
  const file = size();
  const why = !may ? 'Taking packets out needs the role extract' : 'Correct the filter first';
  return (
    <span class="acts">
      {may && !isWrong ? (
        <>
          <button
            class={`btn${packets > 0 ? ' pri' : ''}`} title="Download as pcapng (D asks how)"
            id="download" onClick={() => void download('pcapng')} aria-busy={busy.value !== null}
          >
            <Icon name="down" />Download pcapng
            <span class="weak">{busy.value ?? (file === undefined ? '' : bytes(file))}</span>
          </button>
          <button class="btn" title="Open in Wireshark (W)" onClick={() => show('wireshark')}>
            <Icon name="shark" />Wireshark
          </button>
        </>
      ) : (
        <button class="btn" id="download" aria-disabled="true" title={why} aria-label={`Download: ${why}`}>
          <Icon name={may ? 'down' : 'lock'} />Download
        </button>
      )}
      <button class="btn sq" title="The command for this (Shift C)" aria-label="The command for this"
        onClick={() => show('commands')}><Icon name="shell" /></button>
      <button class="btn sq" title="Copy the link (Y)" aria-label="Copy the link"
        onClick={() => void copy(location.href, 'Link')}><Icon name="link" /></button>
    </span>
  );
}
