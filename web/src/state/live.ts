/** Live: the same question again, about times that move on. At most four times a second. */

import { effect } from '@preact/signals';
import { askAgain, count } from './answers';
import { view } from './view';

const EVERY_MS = 1000;

export function followTimes(): void {
  let timer = 0;
  effect(() => {
    clearInterval(timer);
    if (!view.value.live || view.value.page !== 'explore') return;
    timer = window.setInterval(() => {
      if (!document.hidden && !count.peek().busy) askAgain();
    }, EVERY_MS);
  });
}
