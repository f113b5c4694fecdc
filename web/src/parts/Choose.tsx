/** One of a few: a group of radio buttons that look like one control. */
export function Choose<T extends string>({ label, of, value, set, small, disabled }: {
  label: string;
  of: readonly (readonly [T, string])[];
  value: T;
  set: (to: T) => void;
  small?: boolean;
  disabled?: boolean;
}) {
  const keys = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = of.findIndex(([one]) => one === value);
    const next = of[(at + by + of.length) % of.length];
    if (next) set(next[0]);
    const group = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => group.querySelector<HTMLElement>('[aria-checked=true]')?.focus());
  };
  return (
    <div class={`seg${small ? ' sm' : ''}`} role="radiogroup" aria-label={label} onKeyDown={keys}>
      {of.map(([one, text]) => (
        <button
          role="radio" aria-checked={one === value} tabIndex={one === value ? 0 : -1}
          aria-disabled={disabled} onClick={() => { if (!disabled) set(one); }}
        >{text}</button>
      ))}
    </div>
  );
}
