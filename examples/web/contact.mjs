// A contact as a form has it: one text a field. What is sent is the difference, so that nobody's change is set back.

/** The fields, by the names that the API calls them in its errors. */
export const FIELDS = [
  "name.firstName",
  "name.lastName",
  "email",
  "description",
  "company.companyName",
  "company.street",
  "company.houseNumber",
  "company.postalCode",
  "company.city",
  "company.country",
];
/** `companyName`: inside a company. */
export const REQUIRED = new Set(["name.firstName", "name.lastName", "email", "company.companyName"]);
const isOfCompany = (field) => field.startsWith("company.");

/** The texts of a contact; what it does not have is an empty text. */
export function texts(contact) {
  const value = (field) => field.split(".").reduce((part, name) => part?.[name], contact) ?? "";
  return Object.fromEntries(FIELDS.map((field) => [field, value(field)]));
}

const hasCompany = (form) => FIELDS.some((field) => isOfCompany(field) && form[field] !== "");

/** A new contact's body: without what was left empty, unless the API asks for it. */
export function body(form) {
  const filled = FIELDS.filter((field) => form[field] !== "" || (REQUIRED.has(field) && (!isOfCompany(field) || hasCompany(form))));
  return nested(Object.fromEntries(filled.map((field) => [field, form[field]])));
}

/** The JSON Merge Patch (RFC 7396) that makes `form` of what was read; null: there is nothing to change. */
export function patch(read, form) {
  const changed = FIELDS.filter((field) => form[field] !== read[field]);
  if (!changed.length) return null;
  if (hasCompany(read) && !hasCompany(form)) {
    return { ...nested(values(form, changed.filter((field) => !isOfCompany(field)))), company: null };
  }
  return nested(values(form, changed));
}

/** An empty text takes a value away, but for one that has to be there: then the API says so. */
function values(form, fields) {
  return Object.fromEntries(fields.map((field) => [field, form[field] === "" && !REQUIRED.has(field) ? null : form[field]]));
}

function nested(flat) {
  const made = {};
  for (const [field, value] of Object.entries(flat)) {
    const [first, second] = field.split(".");
    if (second) (made[first] ??= {})[second] = value;
    else made[first] = value;
  }
  return made;
}

/**
 * Two changes of what was read: `mine`, not stored yet, and `theirs`, which is. What only one of us changed is taken;
 * `conflicts` are the fields that both changed, each to something else: a person decides, and until then mine stands.
 */
export function merge(read, mine, theirs) {
  const form = {}, conflicts = [], taken = [];
  for (const field of FIELDS) {
    const isMine = mine[field] !== read[field], isTheirs = theirs[field] !== read[field];
    form[field] = isMine ? mine[field] : theirs[field];
    if (mine[field] === theirs[field]) continue;
    if (isMine && isTheirs) conflicts.push(field);
    else if (isTheirs) taken.push(field);
  }
  return { form, conflicts, taken };
}
