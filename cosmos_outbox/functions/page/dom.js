// Text of the service becomes text nodes and nothing else: no function here takes markup.

const find = (id) => document.getElementById(id);

/** An element with attributes, and children that are elements or texts. `on` holds its listeners. */
function make(tag, { on = {}, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** Write a text only where it changes, so that nobody who listens hears it again. */
function write(element, text) {
  const wanted = String(text ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Write a name in CamelCase that a narrow column may break between its words. */
function writeName(element, name, rest = "") {
  if (element.textContent === name + rest) return;
  const words = name.split(/(?<=[a-z])(?=[A-Z])/);
  element.replaceChildren(...words.flatMap((word, index) => (index ? [make("wbr"), word] : [word])), rest);
}

function mood(element, name) {
  if (name) element.dataset.mood = name;
  else delete element.dataset.mood;
}

/**
 * Make the children of `parent` those of `items`, in their order. A child whose item is still there is kept, changed by
 * `change` in its place: so the focus stays where it is while the page looks again.
 */
function keep(parent, items, keyOf, create, change) {
  const wanted = new Set(items.map((item) => String(keyOf(item))));
  for (const child of [...parent.children]) if (!wanted.has(child.dataset.key)) child.remove();
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    change(child, item);
  }
}

/** A row of a table that stays a table for screen readers when a narrow screen shows it as a card. */
function row(labels, numbers = []) {
  return make(
    "tr",
    { role: "row" },
    ...labels.map((label, index) =>
      make("td", { role: "cell", "data-label": label, class: numbers.includes(index) ? "number" : null }, make("span")),
    ),
  );
}

const cell = (tr, index) => tr.children[index].firstElementChild;

function badge(text, name) {
  return make("span", { class: "badge", "data-mood": name }, text);
}

/** Put one child into an element, unless it shows the same already. */
function put(element, child) {
  const old = element.firstElementChild;
  if (!(old && old.textContent === child.textContent && old.dataset.mood === child.dataset.mood)) element.replaceChildren(child);
}

// Numbers and times, as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (number) => whole.format(number);
const share = (part) => `${part > 0 && part < 0.01 ? "< 1" : count(100 * part)} %`;
const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const left = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${left} s`;
}

const pad = (number) => String(number).padStart(2, "0");
const clockTime = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;

/** A time in the reader's zone: with the day, unless it is today. */
function when(text) {
  if (!text) return "–";
  const date = new Date(text);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return new Date().toDateString() === date.toDateString() ? clockTime(date) : `${day} ${clockTime(date)}`;
}

/** Announce what has just happened to those who cannot see the page. */
function say(text) {
  find("say").textContent = text;
}
