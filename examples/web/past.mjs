// What changed of a contact, in the texts of the form: the API tells properties, and a person reads fields.

import { FIELDS, texts } from "./contact.mjs";

const KINDS = { ContactCreatedEvent: "Created", ContactDeletedEvent: "Deleted" };

export const kind = (change) => KINDS[change.type] ?? "Changed";

/** What each field was (null: nobody knows any more, or it was not there yet) and is (null: it cannot be shown). */
export function lines(change) {
  return change.changes.flatMap((each) => {
    const was = "from" in each ? texts({ [each.field]: each.from }) : null;
    const is = "to" in each ? texts({ [each.field]: each.to }) : null;
    return FIELDS.filter((field) => field === each.field || field.startsWith(`${each.field}.`))
      .map((field) => ({ field, was: was && was[field], is: is && is[field] }))
      .filter((line) => (line.was ?? "") !== line.is);
  });
}

/** What a person is told below the changes that are shown so far. */
export function ending({ completeFrom, continuationToken }) {
  if (continuationToken) return "";
  return completeFrom === 1 ? "That is all of it." : "What was before is not kept any more.";
}
