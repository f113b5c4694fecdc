/** What has come since the list was looked at, while Live is on. */

import { computed, effect, signal } from '@preact/signals';
import { count } from '../state/answers';
import { view } from '../state/view';

const started = signal(0);

effect(() => {
  if (view.value.live) started.value = count.peek().value?.count ?? 0;
});

/** All that has come was looked at. */
export function lookedAt(): void {
  started.value = count.peek().value?.count ?? 0;
}

export const newest = computed(() => {
  const now = count.value.value?.count ?? 0;
  return view.value.live ? Math.max(0, now - started.value) : 0;
});
