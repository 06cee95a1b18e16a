// The page looks every few seconds: never twice at once, not while the tab is hidden, and less often while it is refused.

const BEAT_SECONDS = 3;
const LONGEST_SECONDS = 60;

const parts = [
  { every: 1, name: "relay", look: async () => showRelay(await call("relay")), problem: find("relay-problem") },
  { every: 2, name: "services", look: async () => showDependencies(await call("dependencies")), problem: find("health-problem") },
  { every: 3, name: "what is stuck", look: lookAtStuck, problem: find("stuck-problem") },
  { every: 3, name: "subscribers", look: async () => showSubscribers(await call("subscribers")), problem: find("subscribers-problem") },
];

const looking = { now: false, again: false, whole: true, beat: 0, failures: 0, paused: false, open: false, timer: 0 };

/** Look once at all that is due. */
async function look() {
  clearTimeout(looking.timer);
  if (!looking.open) return;
  if (looking.now) {
    looking.again = true;
    return;
  }
  looking.now = true;
  let failed = true;
  try {
    failed = await lookAtParts();
  } finally {
    looking.now = false;
    looking.whole = failed;
    looking.failures = failed ? looking.failures + 1 : 0;
    looking.beat += 1;
    if (looking.open) write(find("looked"), `${failed ? "Not all could be read at" : "Looked at"} ${clockTime(new Date())}`);
    schedule();
  }
}

/** Read the parts that are due; whether one of them could not be read. */
async function lookAtParts() {
  let failed = false;
  try {
    showInstance(await call("instance"));
  } catch (error) {
    return refused(error);
  }
  showFindings("");
  const due = parts.filter((part) => looking.whole || looking.beat % part.every === 0);
  await Promise.all(due.map(async (part) => {
    try {
      await part.look();
      settle(part, "");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.wantsKey) return askForKey(true);
      failed = true;
      settle(part, `Not known now: ${error.message}`);
    }
    if (looking.open) showFindings("");
  }));
  openHash();
  return failed;
}

/** The service does not answer at all, or wants a key. */
function refused(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.wantsKey) askForKey(Boolean(key.get()));
  else showFindings(`This page is not up to date: ${error.message}.`);
  return true;
}

function settle(part, text) {
  part.unknown = Boolean(text);
  write(part.problem, text);
  part.problem.hidden = !text;
  part.problem.parentElement.classList.toggle("stale", Boolean(text));
}

function schedule() {
  clearTimeout(looking.timer);
  if (looking.paused || document.hidden || !looking.open) return;
  if (looking.again) {
    looking.again = false;
    looking.whole = true;
    look();
    return;
  }
  const seconds = Math.min(LONGEST_SECONDS, BEAT_SECONDS * 2 ** looking.failures);
  looking.timer = setTimeout(look, 1000 * seconds);
}

/** Look at everything now: something was changed, or somebody asks. */
function lookAgain() {
  looking.whole = true;
  look();
}

/** Do what a button asks; a refusal is shown. */
async function guarded(begin) {
  try {
    await begin();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.wantsKey) askForKey(true);
    else say(error.message);
  }
}

/** Show the form for the key; `wrong`: the one that was used is refused. */
function askForKey(wrong) {
  looking.open = false;
  clearTimeout(looking.timer);
  key.forget();
  find("board").hidden = true;
  find("top-buttons").hidden = true;
  find("sign-in").hidden = false;
  write(find("looked"), "");
  write(find("key-problem"), wrong ? "The service refused this key. It must be the admin (master) key." : "");
  find("key").value = "";
  find("key").focus();
}

function open() {
  looking.open = true;
  looking.whole = true;
  looking.failures = 0;
  find("sign-in").hidden = true;
  find("board").hidden = false;
  find("top-buttons").hidden = false;
  find("forget").hidden = !key.get();
  look();
}

find("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = find("key").value.trim();
  if (!key.canBe(given)) {
    write(find("key-problem"), "A key has letters, digits and signs, and no spaces.");
    return;
  }
  key.set(given);
  open();
  find("content").focus();
});

// What was shown goes with the key: only a new document holds nothing of it, the id in the address included.
find("forget").addEventListener("click", () => {
  key.forget();
  leaving.asks = false;
  window.history.replaceState(null, "", location.pathname + location.search);
  location.reload();
});
find("look-now").addEventListener("click", lookAgain);
find("pause").addEventListener("click", () => {
  looking.paused = !looking.paused;
  find("pause").setAttribute("aria-pressed", String(looking.paused));
  write(find("pause"), looking.paused ? "Go on" : "Pause");
  if (!looking.paused) lookAgain();
  else clearTimeout(looking.timer);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(looking.timer);
  } else if (!looking.paused) {
    lookAgain();
  }
});

open();
