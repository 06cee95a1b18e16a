// The book on the screen. Texts of the service become text nodes and nothing else.

import { Change, Refused, call, directory, key, newest } from "./api.mjs";
import { FIELDS, body, merge, patch, texts } from "./contact.mjs";
import { find, make } from "./elements.mjs";
import { LABELS, complain, fill, input, written } from "./form.mjs";
import { arrival, isGone, shows } from "./journey.mjs";

const PAGE = 25;

// The form

/** What is open: its id and version, and the texts as they were read; id null: a contact that is not made yet. */
let open = null;
const saving = new Change(), deleting = new Change();

const hasUnsaved = () => open !== null && patch(open.read, written()) !== null;
const mayLeave = () => !hasUnsaved() || confirm("Leave what you have typed?");
addEventListener("beforeunload", (event) => hasUnsaved() && event.preventDefault());

/** The contact that the address names; null: none. */
const named = () => new URLSearchParams(location.search).get("contact") || null;

/** Let the address name what is open, so that Back, a reload and a link lead there. */
function address() {
  const id = open?.id ?? null;
  if (id !== named()) history.pushState(null, "", id === null ? location.pathname : `?contact=${encodeURIComponent(id)}`);
}

addEventListener("popstate", () => {
  opening = null;
  const id = named();
  if (id === (open?.id ?? null)) return;
  if (id !== null) openContact(id);
  else if (mayLeave()) close(rowWith(open.id));
  else address();
});

function show(contact, etag) {
  open = { id: contact?.id ?? null, etag };
  address();
  find("editor-title").textContent = contact ? `${contact.name.firstName} ${contact.name.lastName}` : "New contact";
  find("delete").hidden = !contact;
  find("book").hidden = find("editor").hidden = false;
  find("conflict").hidden = true;
  complain();
  fill(texts(contact));
  open.read = written(); // as the fields have it: they know one kind of line break
  mark();
}

/** Do what a button asks for, once at a time; a refusal is shown. The button keeps the focus. */
async function guarded(button, work, otherwise) {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) askForKey();
    else await otherwise(error);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

let opening = null;

async function openContact(id) {
  if (!mayLeave()) return address();
  opening = id;
  await guarded(rowWith(id)?.firstElementChild ?? make("button"), async () => {
    const { body: contact, etag } = await call(`contacts/${encodeURIComponent(id)}`);
    if (opening !== id) return;
    show(contact, etag);
    find("editor-title").focus();
  }, (error) => (find("list-problem").textContent = error.status === 404 ? "This contact was deleted; the directory will follow." : error.message));
}

async function save() {
  const was = open, form = written();
  if (was.id === null) {
    const { body: made, etag } = await saving.send("contacts", "POST", { body: body(form) });
    await showStored(was, form, made, etag);
    follow(made.id, made.email, made.sequence);
    return;
  }
  const changes = patch(was.read, form);
  if (changes === null) return complain(new Refused(1, { detail: "Nothing was changed." }));
  const { body: changed, etag } = await saving.send(`contacts/${was.id}`, "PATCH", { etag: was.etag, body: changes });
  await showStored(was, form, changed, etag);
  if (etag) follow(was.id, changed.email, changed.sequence);
}

/** What is stored now, with what was typed since it was sent; nothing, where a person has gone on to another contact. */
async function showStored(was, sent, contact, etag) {
  // A repetition whose contact has changed since is answered without a version.
  const found = etag ? { body: contact, etag } : await newest(contact.id);
  if (open !== was) return;
  const typed = written();
  show(found.body, found.etag);
  fill(merge(sent, typed, open.read).form);
}

/** Another version was stored since: what both changed is shown, side by side, and nothing is sent before Save. */
async function resolve() {
  const was = open, { body: contact, etag } = await newest(was.id);
  if (open !== was) return;
  const mine = written();
  show(contact, etag);
  const theirs = open.read, { form, conflicts, taken } = merge(was.read, mine, theirs);
  fill(form);
  const names = taken.map((field) => LABELS[field]).join(", ");
  find("taken").textContent = [
    names && `Taken over from them: ${names}.`,
    conflicts.length && "Both of you changed what stands below: choose, then save.",
    !conflicts.length && (hasUnsaved() ? "Your own changes are kept: save them once more." : "Nothing of yours is left to save."),
  ].filter(Boolean).join(" ");
  find("choices").replaceChildren(...conflicts.map((field) => choice(field, mine[field], theirs[field])));
  find("conflict").hidden = false;
  find("conflict-title").focus();
}

function choice(field, mine, theirs) {
  const option = (whose, value, checked) => {
    const radio = make("input", { type: "radio", name: `choice-${field}`, checked });
    radio.addEventListener("change", () => (input(field).value = value));
    return make("label", {}, radio, ` ${whose}: ${value || "(empty)"}`);
  };
  return make("fieldset", {}, make("legend", {}, LABELS[field]), option("Yours", mine, true), option("Theirs", theirs, false));
}

async function refused(error) {
  if (error.status !== 412) return complain(error);
  try {
    await resolve();
  } catch (again) {
    if (!(again instanceof Refused)) throw again;
    if (again.status === 401) askForKey();
    else complain(again);
  }
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  complain();
  guarded(find("save"), save, refused);
});
find("new").addEventListener("click", () => {
  if (!mayLeave()) return;
  opening = null;
  show(null, null);
  input(FIELDS[0]).focus();
});
find("close").addEventListener("click", () => mayLeave() && close(rowWith(open.id)));

/** Leave the contact, for its row in the list where it has one. */
function close(row) {
  open = opening = null;
  address();
  find("editor").hidden = true;
  mark();
  (row?.firstElementChild ?? find("name")).focus();
}

find("delete").addEventListener("click", () => {
  find("ask-who").textContent = find("editor-title").textContent;
  find("ask").returnValue = "no";
  find("ask").showModal();
});
find("ask").addEventListener("close", () => {
  if (find("ask").returnValue !== "yes") return;
  guarded(find("delete"), async () => {
    const was = open;
    await deleting.send(`contacts/${was.id}`, "DELETE", { etag: was.etag });
    if (open === was) close();
    follow(was.id, was.read.email);
  }, refused);
});

// The directory, and how a change gets there

const listed = { items: [], token: null, asked: null };

const asked = () => {
  const name = find("name").value.trim();
  return { ...(name && { name }), sort: find("sort").value, pageSize: String(PAGE) };
};

/** Read a page; an answer that comes after something else was asked for is not shown. */
async function look(token = null) {
  const asking = (listed.asked = Symbol("this look"));
  find("list").setAttribute("aria-busy", "true");
  try {
    const parameters = asked();
    const { body: page } = await directory({ ...parameters, ...(token && { continuationToken: token }) });
    if (listed.asked !== asking) return;
    listed.items = token ? [...listed.items, ...page.items] : page.items;
    listed.token = page.continuationToken;
    find("list-problem").textContent = "";
    find("book").hidden = false;
    draw(parameters.name);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (listed.asked !== asking) return;
    if (error.status === 401) return askForKey();
    find("book").hidden = false;
    find("list-problem").textContent = error.message;
  } finally {
    if (listed.asked === asking) {
      find("loading").hidden = true;
      find("list").setAttribute("aria-busy", "false");
    }
  }
}

function draw(name) {
  const known = new Map([...find("list").children].map((row) => [row.dataset.id, row]));
  const rows = listed.items.map((item) => {
    const row = known.get(item.id) ?? rowOf(item.id); // kept, so that the focus stays where it is
    const [name, under] = row.firstElementChild.children;
    name.textContent = `${item.firstName} ${item.lastName}`;
    under.textContent = [item.email, item.company, item.city, item.country].filter(Boolean).join(" · ");
    return row;
  });
  for (const [id, row] of known) if (!listed.items.some((item) => item.id === id)) row.remove();
  rows.forEach((row, place) => {
    if (find("list").children[place] !== row) find("list").insertBefore(row, find("list").children[place] ?? null);
  });
  find("list-status").textContent = rows.length
    ? `${rows.length}${listed.token ? " and more" : ""} found`
    : name ? `No name begins with “${name}”.` : "There is no contact yet: make the first one.";
  find("more").hidden = !listed.token;
  mark();
}

function rowOf(id) {
  const button = make("button", { type: "button" }, make("strong"), make("span"));
  button.addEventListener("click", () => openContact(id));
  return make("li", { "data-id": id }, button);
}

const rowWith = (id) => [...find("list").children].find((row) => row.dataset.id === id);

function mark() {
  for (const row of find("list").children) row.firstElementChild.setAttribute("aria-current", String(row.dataset.id === open?.id));
}

let followed = 0;

/**
 * Show how what was stored travels: the answer is the store's, the directory is what relay and subscriber make of it. What
 * the directory shows, the relay has sent. `sequence`: of the change; null: it was deleted.
 */
async function follow(id, email, sequence = null) {
  const turn = ++followed, isDeleted = sequence === null;
  const station = (name, text, done) => make("li", { class: done && "done" }, make("strong", {}, `${name}: `), text);
  const steps = (relay, subscriber, done) => find("steps").replaceChildren(
    station("Outbox", isDeleted ? "deleted, with its event in one transaction" : `stored with event ${sequence}, in one transaction`, true),
    station("Relay", relay, done),
    station("Subscriber", subscriber, done),
  );
  steps("to the topic …", "to the directory …", false);
  find("journey").hidden = false;
  find("journey").scrollIntoView({ block: "nearest" });
  find("say").textContent = isDeleted ? "Deleted" : "Stored";
  const took = await arrival(
    async () => (await directory({ email, pageSize: "100" })).body,
    isDeleted ? isGone(id) : shows(id, sequence),
    { stopped: () => turn !== followed },
  );
  if (turn !== followed) return;
  if (took === null) steps("to the topic …", "not there yet: the operations page says why", false);
  else steps("sent to the topic", `${isDeleted ? "out of" : "in"} the directory, ${(took / 1000).toFixed(1)} s later`, true);
  find("say").textContent = find("steps").lastElementChild.textContent;
  await look();
}

find("search").addEventListener("submit", (event) => {
  event.preventDefault();
  look();
});
find("sort").addEventListener("change", () => look());
find("more").addEventListener("click", () => look(listed.token));

// The key

function askForKey() {
  const wrong = !find("forget").hidden;
  find("key-problem").textContent = wrong ? "The service does not take this key." : "";
  find("book").hidden = find("loading").hidden = find("new").hidden = find("forget").hidden = true;
  find("sign-in").hidden = false;
  key.forget();
  find("key").focus();
}

find("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(find("key").value.trim());
  find("key").value = "";
  find("sign-in").hidden = true;
  find("loading").hidden = find("new").hidden = find("forget").hidden = false;
  begin();
});
find("forget").addEventListener("click", () => {
  followed += 1;
  key.forget();
  location.reload();
});

async function begin() {
  await look();
  if (find("sign-in").hidden && open === null && named() !== null) await openContact(named());
}

begin();
