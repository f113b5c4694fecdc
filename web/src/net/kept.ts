/** Answers that are kept, so that Back shows at once what was there. */

const MANY = 80;
const SIZE = 32_000_000;

const answers = new Map<string, { value: unknown; size: number }>();
let sum = 0;

export function kept<T>(address: string): T | undefined {
  const found = answers.get(address);
  if (found === undefined) return undefined;
  // The last that was used is the last to go.
  answers.delete(address);
  answers.set(address, found);
  return found.value as T;
}

export function keep(address: string, value: unknown, size: number): void {
  if (size > SIZE / 4) return;
  forget(address);
  answers.set(address, { value, size });
  sum += size;
  for (const old of answers.keys()) {
    if (answers.size <= MANY && sum <= SIZE) break;
    forget(old);
  }
}

function forget(address: string): void {
  sum -= answers.get(address)?.size ?? 0;
  answers.delete(address);
}
