"""Every error with which an order refuses a change.

::

    OrderError
    ├── OrderShipped   a shipped order takes no change
    └── OrderFull      an order has a limited number of lines
"""


class OrderError(Exception):
    """Base of every error that an order raises on purpose."""


class OrderShipped(OrderError):
    """The order was shipped and takes no change any more."""


class OrderFull(OrderError):
    """The order has as many lines as an order can have."""
