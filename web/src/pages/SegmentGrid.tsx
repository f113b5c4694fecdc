import type { Segments } from '../net/types';
import type { Range } from '../state/times';
import { parse } from '../text/time';
import { whole } from '../text/numbers';

/** Cells that are drawn: of more segments, the last ones. */
const MOST = 1500;

/** The segments of the archive as cells: which are from the times that are asked about. */
export function SegmentGrid({ segments, range, asked, read }: {
  segments: Segments['segments'];
  range: Range | null;
  asked: number;
  read: boolean;
}) {
  const isIn = (one: Segments['segments'][number]): boolean => {
    const [first, last] = [parse(one.first) ?? 0n, parse(one.last) ?? 0n];
    return range === null || (first < range.to && last >= range.from);
  };
  const cells = segments.slice(-MOST);
  const inside = segments.filter(isIn).length;
  return (
    <>
      <div class="segs" role="img"
        aria-label={`${whole(inside)} of ${whole(segments.length)} segments are from these times, ${whole(asked)} were asked`}>
        {cells.map((one) => (
          <i class={isIn(one) ? (read ? 'packets' : 'columns') : ''}
            title={`${one.file}: ${one.first} to ${one.last}, ${whole(one.packets)} packets`} />
        ))}
      </div>
      <p class="dim under">
        {whole(segments.length)} segments, {whole(inside)} from these times, of which {whole(asked)} had
        to be asked; the others have none of the values.
      </p>
    </>
  );
}
