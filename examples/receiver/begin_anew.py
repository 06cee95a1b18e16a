"""The service was restored to an earlier moment: every aggregate is read there again, whatever was applied before.

Run it while nothing is posted: with the relay stopped for five minutes, after which a request that was under way is
refused by the age of its signature. It may be run again.
"""

import sys

import httpx

from examples.receiver.app import database, source
from examples.receiver.inbox import Inbox


def main() -> None:
    """For ``python -m examples.receiver.begin_anew``."""
    file = database()
    if not file.exists():
        sys.exit(f"{file} is not there: set RECEIVER_DATABASE to the receiver's file")
    try:
        read_again = source()
    except ValueError as error:
        sys.exit(str(error))
    print(f"reading every aggregate of {file} at its source", flush=True)
    try:
        counts = Inbox(file, read_again).begin_anew()
    except httpx.HTTPError as error:
        sys.exit(f"the source does not answer: {error!r}. Run this again before anything is posted")
    print(f"{counts['there']} are as the source shows them, {counts['gone']} are gone")


if __name__ == "__main__":
    main()
