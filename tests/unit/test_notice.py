"""A notice tells subscribers which place is taken, and nothing that the discarded document had else."""

from cosmos_outbox.outbox.notice import Notice
from tests.support.contacts import NOON
from tests.support.feed import contact_key

CONTACT = contact_key("a")


def test_a_notice_of_a_document_without_a_valid_id_and_place_tells_neither() -> None:
    notice = Notice(CONTACT, "johndoe@contoso.com", None, NOON)
    assert notice.data == {
        "id": notice.id, "action": "EventDiscarded", "createdAt": "2026-03-01T12:00:00Z",
        "aggregateType": "contact", "aggregateId": CONTACT.id,
    }  # fmt: skip
