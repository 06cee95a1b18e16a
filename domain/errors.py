"""What a contact can refuse.

::

    ContactError
    └── ContactDeleted   a deleted contact takes no change

Values that break a rule never become a contact: the models in ``domain.values`` refuse them.
"""


class ContactError(Exception):
    """Base of every error that a contact raises on purpose."""


class ContactDeleted(ContactError):
    """The contact was deleted: it takes no change any more. Create a new one."""
