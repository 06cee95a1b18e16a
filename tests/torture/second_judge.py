"""The app's own subscriber judges the events a second time: at rest, every entry of its directory equals its contact.

The first judge looks at what arrived. This one looks at what came of it, without any rebuild: whatever was killed, set
aside, delivered again, parked or discarded. Everything that it finds may still pass while the directory catches up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.torture.entries import as_an_entry
from tests.torture.violation import Violation

RULE = "directory"

_Item = Mapping[str, Any]


def second_opinion(
    contacts: Sequence[_Item], entries: Sequence[_Item], set_aside: Sequence[_Item]
) -> list[Violation]:
    """What is wrong with the directory, given the contacts as the API lists them, and what is set aside."""
    found = [f"{each['eventId']} is set aside: {each['reason']}" for each in set_aside]
    of_contact = {str(entry["id"]): entry for entry in entries}
    if len(of_contact) < len(entries):
        found.append("an entry is listed twice")
    living = {str(contact["id"]): contact for contact in contacts}
    found += [f"{gone} is shown, and is no contact" for gone in sorted(of_contact.keys() - living.keys())]
    for contact_id, contact in living.items():
        entry, wanted = of_contact.get(contact_id), as_an_entry(contact) | {"sequence": contact["sequence"]}
        if entry is None:
            found.append(f"{contact_id} is not shown")
            continue
        wrong = [name for name, value in wanted.items() if entry[name] != value]
        if wrong:
            found.append(
                f"{contact_id}, at sequence {entry['sequence']} of {contact['sequence']}, differs in {', '.join(wrong)}"
            )
    return [Violation(RULE, text, may_pass=True) for text in found]
