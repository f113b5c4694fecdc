import { whole } from '../text/numbers';
import type { Choice, Choices as Open } from './completion';

/** The list under the filter. */
export function Choices({ choices, take }: {
  choices: Open;
  take: (choice: Choice) => void;
}) {
  return (
    <div class="compl" style={{ left: `min(${choices.start}ch, calc(100% - 440px))` }}>
      <h3>{choices.heading}</h3>
      <ul role="listbox" id="choices" aria-label={choices.heading}>
        {choices.list.map((choice, n) => (
          <li
            role="option" id={`choice-${n}`} aria-selected={n === choices.chosen}
            onMouseDown={(event) => { event.preventDefault(); take(choice); }}
          >
            <span class="mono">{choice.text}</span>
            <span class="dim">{choice.about}</span>
            <span>{choice.packets === undefined ? '' : whole(choice.packets)}</span>
          </li>
        ))}
      </ul>
      <div class="foot">
        <span><kbd>↑</kbd> <kbd>↓</kbd> choose</span>
        <span><kbd>Tab</kbd> take</span>
        <span><kbd>Esc</kbd> close</span>
      </div>
    </div>
  );
}
