"""``python -m cosmos_outbox``: see :mod:`cosmos_outbox.cli.main`."""

import sys

from cosmos_outbox.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
