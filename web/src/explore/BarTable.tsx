import { Dialog } from '../parts/Dialog';
import { histogram } from '../state/answers';
import { clock, parts } from '../text/time';
import { bytes, whole } from '../text/numbers';
import { bars } from './bars';

/** The bars of the timeline as a table. */
export function BarTable() {
  const found = histogram.value.value;
  const { start, span, totals, series } = bars(found);
  const amount = (n: number) => (found?.by === 'bytes' ? bytes(n) : whole(n));
  return (
    <Dialog label="The timeline as a table" wide>
      <h2 class="hd">{found?.by === 'bytes' ? 'Bytes' : 'Packets'} over time</h2>
      <div class="bd scroll" tabIndex={0}>
        <table class="plain">
          <thead><tr><th>From</th><th class="num">all</th>
            {series.map(({ name }) => <th class="num">{name}</th>)}</tr></thead>
          <tbody>
            {totals.map((total, at) => {
              const time = start + span * BigInt(at);
              return (
                <tr><td class="mono">{parts(time).date} {clock(time, span)}</td>
                  <td class="num">{amount(total)}</td>
                  {series.map(({ counts }) => <td class="num">{amount(counts[at] ?? 0)}</td>)}</tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
