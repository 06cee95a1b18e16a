"""Writes the files in ``docs/use/events/`` from the code; a test compares them."""

from tools.required import require

if __name__ == "__main__":
    require("events")

from pathlib import Path

from cosmos_outbox.cli.schemas import contract, write
from infra.bootstrap import service
from tools.events import samples

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "use" / "events"


def files() -> dict[str, str]:
    """Returns the generated files, as ``cosmos-outbox schemas`` makes them, with a real message of each event."""
    examples = {
        str(message.subject): {"headers": samples.headers(message), "payload": samples.body(message)}
        for message in samples.messages()
    }
    return contract(service, examples)


if __name__ == "__main__":
    write(FOLDER, files())
