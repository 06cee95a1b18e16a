"""The files in ``docs/use/events/`` are what the code says: this command writes them, a test compares them."""

from cosmos_outbox.cli import installed

if __name__ == "__main__":
    installed.require("events")

import sys
from pathlib import Path

from cosmos_outbox.contracts.release import compare, contract, write
from infra.bootstrap import service
from tools.events import samples

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "use" / "events"


def files() -> dict[str, str]:
    """The generated files, as ``cosmos-outbox schemas`` makes them, with a real message of each event."""
    examples = {
        str(message.subject): {"headers": samples.headers(message), "payload": samples.body(message)}
        for message in samples.messages()
    }
    return contract(service, examples)


def main(folder: Path = FOLDER) -> int:
    """Write every file that differs, unless that breaks a reader."""
    made = files()
    if told := compare(folder, made).breaks:
        print(*told, sep="\n", file=sys.stderr)
        return 1
    for name in write(folder, made):
        print(f"events: wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
