// The stored and the parked events of one aggregate, and where each stands; the values stay in the store.

const EVENT_STATES = {
  waiting: ["waiting", "warn"],
  sent: ["sent", "good"],
  parked: ["parked", "bad"],
  discarded: ["discarded", "warn"],
  unknown: ["not known", null],
};
const EVENT_COLUMNS = ["Sequence", "State", "Event", "Created"];
const events = { type: null, id: null, rows: [], before: null, reading: null };

/** Show the events of an aggregate that something on the page names. */
function openEvents(type, id) {
  find("events-type").value = type;
  find("events-id").value = id;
  find("events-title").focus();
  find("events-title").scrollIntoView({ block: "start" });
  return showEvents(type, id);
}

async function showEvents(type, id) {
  Object.assign(events, { type, id, rows: [], before: null });
  location.replace(`#events/${type}/${encodeURIComponent(id)}`);
  await readEvents();
}

/** Read the next page, and add it; an answer that comes after something else was asked for is not shown. */
async function readEvents() {
  const { type, id } = events;
  const reading = (events.reading = Symbol("this reading"));
  write(find("events-problem"), "");
  try {
    const page = await call(`events/${type}/${encodeURIComponent(id)}?${query({ pageSize: PAGE, before: events.before })}`);
    if (events.reading !== reading) return;
    events.rows.push(...page.items);
    events.before = page.before;
    find("events-result").hidden = false;
    write(find("events-summary"), `${id} · ${many(events.rows.length, "event")}${page.before === null ? "" : " and more"}`);
    keep(find("events").tBodies[0], events.rows, (each) => each.eventId, () => row(EVENT_COLUMNS, [0]), showEvent);
    find("events-older").hidden = events.before === null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.wantsKey) return askForKey(true);
    if (events.reading !== reading) return;
    find("events-result").hidden = events.rows.length === 0;
    write(find("events-problem"), error.message);
  }
}

function showEvent(tr, event) {
  write(cell(tr, 0), event.sequence ?? "none");
  put(cell(tr, 1), badge(...(EVENT_STATES[event.state] ?? [event.state, null])));
  writeName(cell(tr, 2), event.action ?? "a document that is no valid event", "");
  tr.children[2].title = `Event ${event.eventId}`;
  write(cell(tr, 3), when(event.createdAt));
  tr.children[3].title = event.correlationId ? `Correlation id ${event.correlationId}` : "";
}

find("events-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = find("events-id").value.trim();
  if (id) showEvents(find("events-type").value, id);
});
find("events-older").addEventListener("click", () => readEvents());

/** An address that ends in #events/type/id opens with that list. */
function openHash() {
  const [, type, encoded] = location.hash.match(/^#events\/([^/]+)\/(.+)$/) ?? [];
  if (!known.instance?.aggregates.includes(type)) return;
  let id;
  try {
    id = decodeURIComponent(encoded);
  } catch {
    return; // nobody's id: the address was cut or mistyped
  }
  if (events.type !== type || events.id !== id) openEvents(type, id);
}
