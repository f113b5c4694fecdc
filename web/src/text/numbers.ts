/** Numbers for people: thousands with commas, decimal units, a space before the unit. */

const WHOLE = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** 2417635 as 2,417,635. */
export function whole(number: number): string {
  return WHOLE.format(number);
}

/** From 10,000 on short: 392 k, 1.85 M. */
export function short(number: number): string {
  if (number < 10_000) return whole(number);
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]] as const) {
    // What would round to 1,000 of a unit is one of the next.
    if (number >= 0.9995 * size) {
      const value = number / size;
      return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 && unit !== 'k' ? 1 : 0)} ${unit}`;
    }
  }
  return whole(number);
}

/** Bytes: 1.62 GB. */
export function bytes(number: number): string {
  for (const [unit, size, digits] of [
    ['PB', 1e15, 2], ['TB', 1e12, 2], ['GB', 1e9, 2], ['MB', 1e6, 1], ['kB', 1e3, 1],
  ] as const) {
    if (number >= size) return `${(number / size).toFixed(digits)} ${unit}`;
  }
  return `${whole(number)} B`;
}

/** Bytes for an axis, with no more digits than it needs: 800 kB, 1.6 MB. */
export function axisBytes(number: number): string {
  return bytes(number).replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');
}

/** Packets for an axis: 0.5, 600, 30 k. */
export function axisShort(number: number): string {
  const text = number < 10 && number % 1 !== 0 ? String(number) : short(number);
  return text.replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');
}

/** Bits a second: 2.61 Gb/s. */
export function bits(number: number): string {
  for (const [unit, size] of [['Gb/s', 1e9], ['Mb/s', 1e6], ['kb/s', 1e3]] as const) {
    if (number >= size) return `${(number / size).toFixed(2)} ${unit}`;
  }
  return `${whole(number)} b/s`;
}

/** A share of 1 as 76.6 %. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** 1 packet, 2 packets. */
export function counted(number: number, noun: string): string {
  return `${whole(number)} ${noun}${number === 1 ? '' : 's'}`;
}
