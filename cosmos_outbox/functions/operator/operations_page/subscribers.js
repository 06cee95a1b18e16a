// What subscribers have not done: a section for each list that the service names, such as "set-aside" or "board/set-aside".

const ASIDE_HINT = "Messages that the subscriber could not apply, or whose effects may have been done.";
const ASIDE_STATES = { waiting: ["is tried again", "warn"], refused: ["refused", "bad"] };

/** What each subscriber tells of itself, by the path before its calls. */
const subscribers = new Map();

async function apply(items, list) {
  const consent = await ask({
    title: `Apply ${many(items.length, "message")}`,
    text: "Each message is tried now, after those of the same aggregate that come before it. An effect that may have been done is run again: find out first what became of it.",
    what: items.map((item) => list.labelOf(item)),
    verb: `Apply ${many(items.length, "message")}`,
    last: `${many(items.length, "message is", "messages are")} tried again now.`,
  });
  // Of a refused one 503 may mean that its effect was run, and that this could not be recorded.
  const once = (item) => item.state === "refused";
  if (consent) act(`Apply ${many(items.length, "message")}`, items, list, { path: (item) => `${list.path}/${item.id}/apply`, text: () => "applied", once });
}

function giveUp(items, list) {
  discard(items, list, { what: "message", last: (number) => `${many(number, "message is", "messages are")} given up.` });
}

async function collect(prefix) {
  const title = "Collect dead letters";
  const consent = await ask({
    title,
    text: "The dead letters of the subscription become messages that are set aside.",
    verb: "Collect",
    last: "The dead-letter queue of the subscription is emptied into the list below.",
  });
  const text = ({ collected, emptied }) => `${many(collected, "message")} collected${emptied ? "" : "; whether more are left is not known"}`;
  if (consent) work(title, [{ label: "dead-letter queue", run: async (stop) => text(await call(`${prefix}dead-letters/collect`, { method: "POST", stop })) }]);
}

/** The section of one list; and the parts of the page that it has to be read from. */
function subscriberSection(path) {
  const prefix = path.includes("/") ? path.slice(0, path.lastIndexOf("/") + 1) : "";
  const id = `list-${path.replaceAll("/", "-")}`;
  const [hint, problem, box] = [make("p", { class: "hint" }, ASIDE_HINT), make("p", { class: "problem", hidden: true }), make("div", { class: "list", id })];
  const title = make("h2", { id: `${id}-title` }, prefix ? `Messages set aside · ${prefix.slice(0, -1)}` : "Messages set aside");
  const button = make("button", { type: "button", class: "quiet", on: { click: () => collect(prefix) } }, "Collect dead letters …");
  find("subscribers").append(make("section", { class: "card", "aria-labelledby": `${id}-title` }, make("div", { class: "card-head" }, title, hint, button), problem, box));
  const list = new List({
    box,
    path,
    name: "messages set aside",
    empty: "Nothing is set aside.",
    labelOf: named,
    columns: [{ label: "Aggregate", show: showAggregate }, { label: "Event", show: showEvent }, stateColumn(ASIDE_STATES), reasonColumn, ageColumn((item) => item.ageSeconds), attemptsColumn],
    actions: [{ name: "Apply", on: () => true, begin: apply }, { name: "Discard", on: () => true, begin: giveUp }],
  });
  parts.push({ name: path, every: 3, problem, look: () => list.look() });
  parts.push({ name: `${prefix}subscriber`, every: 3, problem: null, look: async () => showSubscriber(prefix, hint, await call(`${prefix}subscriber`)) });
}

function showSubscriber(prefix, hint, subscriber) {
  subscribers.set(prefix, subscriber.setAside);
  const sum = (state) => [...subscribers.values()].reduce((total, each) => total + (each[state] ?? 0), 0);
  const [waiting, refused] = [sum("waiting"), sum("refused")];
  known.aside = waiting + refused;
  write(find("tile-aside"), count(waiting + refused));
  mood(find("tile-aside"), refused ? "bad" : waiting ? "warn" : null);
  write(find("tile-aside-of"), `${count(waiting)} tried again, ${count(refused)} refused`);
  const walk = subscriber.lastWalk;
  const walked = walk ? ` The last walk ended ${when(walk.endedAt)} and healed ${count(walk.healed)}.` : "";
  write(hint, `${ASIDE_HINT}${walked}`);
}

/** Make the sections, once the service has told which lists it has. */
function showLists(paths) {
  const wanted = paths.filter((path) => path.endsWith("set-aside"));
  wanted.forEach(subscriberSection);
  find("tile-aside-box").hidden = !wanted.length;
}
