"""What a use case can come to, beyond what the outbox raises.

::

    UseCaseError
    └── ContactNotFound   no such contact, or it was deleted
"""


class UseCaseError(Exception):
    """Base of every error that a use case raises on purpose."""


class ContactNotFound(UseCaseError):
    """There is no such contact, or it was deleted: the caller cannot tell the two apart, and need not."""
