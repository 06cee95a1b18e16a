// A change is stored at once, and is in the directory when relay and subscriber have brought it there: this waits for it.

/**
 * Look until `isThere` says so of what `look` finds. The milliseconds that it took; null: not within `patience`.
 * `look` may fail: the directory may be away for a while.
 */
export async function arrival(look, isThere, { pause = 150, patience = 60_000, now = () => performance.now(), wait = sleep, stopped = () => false } = {}) {
  const begun = now();
  for (;;) {
    try {
      if (isThere(await look())) return now() - begun;
    } catch {
      // It is asked again; how the list is, the list says.
    }
    if (stopped() || now() - begun > patience) return null;
    await wait(pause);
  }
}

/** Whether the directory shows an event of this contact, or a later one. */
export const shows = (id, sequence) => (page) => page.items.some((item) => item.id === id && item.sequence >= sequence);
export const isGone = (id) => (page) => page.items.every((item) => item.id !== id);

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
