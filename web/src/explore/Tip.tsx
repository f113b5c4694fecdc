import { bytes, whole } from '../text/numbers';
import { clock, zone } from '../text/time';
import type { Bars } from './bars';

/** The values of a bar, and a line through it. */
export function Tip({ bars, index, left, width, isBytes }: {
  bars: Bars;
  index: number;
  left: number;
  width: number;
  isBytes: boolean;
}) {
  const amount = (n: number) => (isBytes ? bytes(n) : whole(n));
  const side = left < width / 2 ? { left: `${left + 12}px` } : { right: `${width - left + 12}px` };
  return (
    <div class="tip" style={side}>
      <div class="h">{clock(bars.start + bars.span * BigInt(index), bars.span)} {zone.value}</div>
      <dl>
        {bars.series.map(({ name, colour, counts }) => ((counts[index] ?? 0) === 0 ? null : (
          <>
            <i class={`k-${colour}`} /><dt>{name === '' ? '(none)' : name}</dt>
            <dd>{amount(counts[index] ?? 0)}</dd>
          </>
        )))}
        <i /><dt><b>all</b></dt><dd><b>{amount(bars.totals[index] ?? 0)}</b></dd>
      </dl>
    </div>
  );
}
