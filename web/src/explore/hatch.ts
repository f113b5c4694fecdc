/** Patterns of what is missing: stripes for lost packets, dots where nothing was recorded. */

/** Colours of the page, as they are now. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function pattern(on: CanvasRenderingContext2D, size: number, draw: (to: CanvasRenderingContext2D) => void) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const to = tile.getContext('2d');
  if (to) draw(to);
  return on.createPattern(tile, 'repeat');
}

export function stripes(on: CanvasRenderingContext2D, ratio: number): CanvasPattern | null {
  const size = Math.round(6 * ratio);
  return pattern(on, size, (to) => {
    to.strokeStyle = colour('loss-fill');
    to.lineWidth = 2 * ratio;
    for (const at of [-size, 0, size]) {
      to.beginPath();
      to.moveTo(at, size);
      to.lineTo(at + size, 0);
      to.stroke();
    }
  });
}

export function dots(on: CanvasRenderingContext2D, ratio: number): CanvasPattern | null {
  const size = Math.round(5 * ratio);
  return pattern(on, size, (to) => {
    to.fillStyle = colour('ctl');
    to.fillRect(0, 0, ratio, ratio);
  });
}
