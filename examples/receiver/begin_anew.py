"""The service was restored to an earlier moment: every aggregate is read there again, whatever was applied before.

Run it while nothing is posted: with the relay stopped for five minutes, after which a request that was under way is
refused by the age of its signature. It may be run again.
"""

import sys

import httpx

from examples.receiver.app import database, source
from examples.receiver.inbox import Inbox

_PRINT_EACH = 100
"""Aggregates."""


def main() -> None:
    """For ``python -m examples.receiver.begin_anew``."""
    file = database()
    if not file.exists():
        sys.exit(f"{file} is not there: set RECEIVER_DATABASE to the receiver's file")
    try:
        inbox = Inbox(file, source())
    except ValueError as error:
        sys.exit(str(error))
    known, gone = inbox.known(), 0
    print(f"reading the {len(known)} aggregates of {file} at their source", flush=True)
    for number, each in enumerate(known, 1):
        try:
            gone += not inbox.read_anew(*each)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            sys.exit(f"the source does not answer: {error!r}. Run this again before anything is posted")
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"SOURCE shows no aggregate with its sequence ({error!r}): set it, and run this again")
        if number % _PRINT_EACH == 0:
            print(f"{number} of {len(known)}", flush=True)
    print(f"{len(known) - gone} are as the source shows them, {gone} are gone")


if __name__ == "__main__":
    main()
