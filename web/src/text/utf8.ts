/** A place in bytes of UTF-8, as the server counts, in characters of the text. */
export function characters(text: string, bytes: number): number {
  if (bytes < 0) return -1;
  let left = bytes;
  let at = 0;
  for (const letter of text) {
    if (left <= 0) break;
    left -= new TextEncoder().encode(letter).length;
    at += letter.length;
  }
  return at;
}
