import { Choose } from '../parts/Choose';
import { change, view } from '../state/view';
import { CountLine } from './CountLine';
import { FilterBox } from './FilterBox';
import { FilterError } from './FilterError';
import { Times } from './Times';
import { guess } from './words';

/** The question: language, filter, times. Under it the number that answers it. */
export function Ask() {
  const { q, syntax } = view.value;
  return (
    <section class="ask" aria-label="Question">
      <div class="ask-row">
        <Choose label="Language of the filter" value={syntax ?? guess(q)}
          set={(to) => change({ syntax: to }, 'push')}
          of={[['pcap', 'tcpdump'], ['wireshark', 'Wireshark']]} />
        <FilterBox />
        <Times />
      </div>
      <FilterError />
      <CountLine />
    </section>
  );
}
