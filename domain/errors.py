"""The errors with which a contact refuses a change.

::

    ContactError
    └── ContactDeleted   a deleted contact takes no change

The models in ``domain.values`` refuse values that break a rule.
"""


class ContactError(Exception):
    """Base of every error that a contact raises on purpose."""


class ContactDeleted(ContactError):
    """A deleted contact takes no change: create a new contact."""
