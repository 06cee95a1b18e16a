"""Every error with which a contact refuses a change.

::

    ContactError
    └── ContactDeleted   a deleted contact takes no change

Values that break a rule never become a contact: the models in ``domain.values`` refuse them.
"""


class ContactError(Exception):
    """Base of every error that a contact raises on purpose."""


class ContactDeleted(ContactError):
    """A deleted contact takes no change: create a new contact."""
