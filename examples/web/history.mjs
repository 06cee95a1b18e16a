// What changed of the contact that is open, on the screen: never that of another one.

import { Refused, past } from "./api.mjs";
import { find, make } from "./elements.mjs";
import { LABELS } from "./form.mjs";
import { ending, kind, lines } from "./past.mjs";

const recalled = { token: null, asked: null };

export function fold() {
  recalled.asked = null;
  find("history").hidden = true;
  find("past").setAttribute("aria-expanded", "false");
}

/** Forget the one that was shown. */
export function clear() {
  fold();
  find("changes").replaceChildren();
  find("history-told").textContent = "";
  find("older").hidden = true;
}

/**
 * Show what changed of a contact, anew or further `down`; an answer that comes too late is not shown. Throws Refused where
 * the key is refused.
 */
export async function recall(id, { down = false } = {}) {
  const token = down ? recalled.token : null;
  const asking = (recalled.asked = Symbol("this look"));
  find("history").hidden = false;
  find("past").setAttribute("aria-expanded", "true");
  find("history-problem").textContent = "";
  try {
    const { body: page } = await past(id, token);
    if (recalled.asked !== asking) return;
    const changes = page.items.map(told);
    if (token) find("changes").append(...changes);
    else find("changes").replaceChildren(...changes);
    find("history-told").textContent = ending(page);
    recalled.token = page.continuationToken;
    if (!recalled.token && document.activeElement === find("older")) find("history-title").focus();
    find("older").hidden = !recalled.token;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (recalled.asked !== asking) return;
    if (error.status === 401) throw error;
    find("history-problem").textContent = error.status === 404 ? "This contact was deleted." : error.message;
  }
}

function told(change) {
  const shown = (tag, text) => make(text ? tag : "span", {}, text || "(empty)");
  const text = ({ field, was, is }) => {
    const now = is === null ? make("span", {}, "(not shown)") : shown(was === null ? "b" : "ins", is);
    return make("li", {}, make("span", {}, `${LABELS[field]}: `), ...(was === null ? [now] : [shown("del", was), make("span", { class: "hidden" }, " became "), now]));
  };
  const at = make("time", { datetime: change.at }, new Date(change.at).toLocaleString());
  return make("li", {}, make("strong", {}, kind(change)), " ", at, make("ul", {}, ...lines(change).map(text)));
}
