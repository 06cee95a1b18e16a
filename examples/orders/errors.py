"""What an order can refuse.

::

    OrderError
    ├── OrderShipped   a shipped order takes no change
    └── OrderFull      an order has a limited number of lines
"""


class OrderError(Exception):
    """Base of every error that an order raises on purpose."""


class OrderShipped(OrderError):
    """The order is on its way and takes no change any more."""


class OrderFull(OrderError):
    """The order has as many lines as an order can have."""
