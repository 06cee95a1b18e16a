"""What only the outside can get wrong.

::

    InfraError
    ├── Misconfigured             a setting or the deployment is missing or makes no sense
    └── RequestError              infra/http/errors.py: what is wrong with an HTTP request

Errors of the SDKs become errors of ours at one edge each: ``infra/cosmos/errors.py``, ``infra/servicebus/errors.py``.
"""


class InfraError(Exception):
    """Base of every error that an adapter raises on purpose."""


class Misconfigured(InfraError):
    """A setting or the deployment is missing or makes no sense; the message names it and says what it should be."""
