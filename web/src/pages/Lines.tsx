import { useEffect, useRef, useState } from 'preact/hooks';
import { short } from '../text/numbers';
import { type Ns, SECOND, clock } from '../text/time';

const HEIGHT = 150;
const [LEFT, TOP, BOTTOM] = [46, 8, 18];

/** A small line chart: what it shows is in the numbers beside it, too. */
export function Lines({ label, series, missing, ends, most }: {
  label: string;
  series: { values: number[]; colour: string; fill: boolean }[];
  missing: { from: number; to: number; gap: boolean }[];
  ends: Ns[];
  most?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [WIDTH, setWidth] = useState(600);
  useEffect(() => {
    const seen = new ResizeObserver(() => setWidth(Math.max(100, box.current?.clientWidth ?? 600)));
    if (box.current) seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  const top = most ?? Math.max(1, ...series.flatMap(({ values }) => values)) * 1.05;
  const [wide, high] = [WIDTH - LEFT, HEIGHT - TOP - BOTTOM];
  const path = (values: number[]) => values.map((value, n) => {
    const x = LEFT + (n / Math.max(1, values.length - 1)) * wide;
    return `${n === 0 ? 'M' : 'L'}${x.toFixed(1)} ${(TOP + high * (1 - value / top)).toFixed(1)}`;
  }).join('');
  const now = series[0]?.values.at(-1) ?? 0;
  return (
    <div ref={box}><svg class="lines" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img"
      aria-label={`${label}: ${short(now)} now, ${short(Math.max(0, ...(series[0]?.values ?? [])))} at most`}>
      <defs>
        <pattern id="lost" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path class="lost" d="M1 0v6" />
        </pattern>
        <pattern id="gap" width="5" height="5" patternUnits="userSpaceOnUse"><path class="gap" d="M0 0h1v1H0z" /></pattern>
      </defs>
      {[0, 0.5, 1].map((share) => (
        <g>
          <path class="grid" d={`M${LEFT} ${TOP + high * (1 - share)}H${WIDTH}`} />
          <text x={LEFT - 6} y={TOP + high * (1 - share) + 4} text-anchor="end">{short(top * share)}</text>
        </g>
      ))}
      {series.map(({ values, colour, fill }) => values.length > 1 && (
        <g class={`s-${colour}`}>
          {fill && <path class="area" d={`${path(values)}L${WIDTH} ${TOP + high}L${LEFT} ${TOP + high}Z`} />}
          <path class={`line${fill ? '' : ' dash'}`} d={path(values)} />
        </g>
      ))}
      {missing.map(({ from, to, gap }) => (
        <rect class={gap ? 'isgap' : 'islost'} x={LEFT + from * wide} y={TOP}
          width={Math.max(2, (to - from) * wide)} height={high} fill={gap ? 'url(#gap)' : 'url(#lost)'} />
      ))}
      {ends.map((at, n) => (
        <text x={n === 0 ? LEFT : WIDTH} y={HEIGHT - 4} text-anchor={n === 0 ? 'start' : 'end'}>
          {clock(at, SECOND)}
        </text>
      ))}
    </svg></div>
  );
}
