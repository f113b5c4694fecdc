import { copy } from './announce';
import { Icon } from './Icon';

/** A command to copy. */
export function Command({ text, label }: { text: string; label?: string }) {
  return (
    <div class="cmdline">
      {label !== undefined && <span class="dim">{label}</span>}
      <div class="cmd">
        <code tabIndex={0}>{text}</code>
        <button class="btn sm" onClick={() => void copy(text, 'Command')} aria-label={`Copy: ${text}`}>
          <Icon name="copy" />Copy
        </button>
      </div>
    </div>
  );
}
