"""Every error that a use case adds to the errors of the outbox.

::

    UseCaseError
    └── ContactNotFound   no such contact, or it was deleted
"""


class UseCaseError(Exception):
    """Base of every error that a use case raises on purpose."""


class ContactNotFound(UseCaseError):
    """There is no such contact, or it was deleted: the caller cannot tell the two apart, and need not."""
