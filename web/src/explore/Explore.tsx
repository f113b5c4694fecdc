import { Completeness, Notes } from '../ask/Completeness';
import { RoleStrip } from '../ask/RoleStrip';
import { count, flows, histogram } from '../state/answers';
import { change, view } from '../state/view';
import { whole } from '../text/numbers';
import { Flows } from './Flows';
import { PacketPane, below } from './PacketPane';
import { Packets } from './Packets';
import { Timeline } from './Timeline';
import { Tops } from './Tops';

function Tabs() {
  const { tab } = view.value;
  const tabs = [
    ['packets', 'Packets', count.value.value?.count],
    ['flows', 'Conversations', flows.value.value?.conversations],
  ] as const;
  return (
    <div class="tabs" role="tablist" aria-label="Lists">
      {tabs.map(([name, text, many]) => (
        <button role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="list"
          tabIndex={tab === name ? 0 : -1}
          onClick={() => change({ tab: name }, 'push')}
          onKeyDown={(event) => {
            if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
            event.preventDefault();
            event.stopPropagation();
            const other = tab === 'packets' ? 'flows' : 'packets';
            change({ tab: other }, 'push');
            requestAnimationFrame(() => document.getElementById(`tab-${other}`)?.focus());
          }}>
          {text}<span class="ct">{many === undefined ? '' : whole(many)}</span>
        </button>
      ))}
    </div>
  );
}

/** The question's answers: tops, timeline, lists, and one packet. */
export function Explore() {
  const { tab, p } = view.value;
  const isOpen = p !== undefined && tab === 'packets';
  histogram.value;
  return (
    <>
      <Completeness />
      <Notes />
      <RoleStrip />
      <div class={`ex${isOpen ? '' : ' nodet'}${below.value ? ' below' : ''}`}>
        <Tops />
        <Timeline />
        <section class="list" aria-label="Lists">
          <Tabs />
          <div class="panel-list" id="list" role="tabpanel" aria-labelledby={`tab-${tab}`}>
            {tab === 'packets' ? <Packets /> : <Flows />}
          </div>
        </section>
        {isOpen && <PacketPane />}
      </div>
    </>
  );
}
