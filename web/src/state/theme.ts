/** Light or dark: as the system has it, until somebody chooses. */

import { effect, signal } from '@preact/signals';

type Theme = 'light' | 'dark';

function first(): Theme {
  const chosen = localStorage.getItem('theme');
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export const theme = signal<Theme>(first());

export function apply(): void {
  effect(() => { document.documentElement.dataset.theme = theme.value; });
}

export function toggle(): void {
  theme.value = theme.value === 'dark' ? 'light' : 'dark';
  localStorage.setItem('theme', theme.value);
}
