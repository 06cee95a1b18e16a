"""The files in ``docs/use/events/`` are what the code says: this command writes them, a test compares them."""

from cosmos_outbox.cli import installed

if __name__ == "__main__":
    installed.require("events")

import json
import sys
from pathlib import Path

from tools.events import asyncapi
from tools.events.schemas import KINDS, file_name, schema

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "use" / "events"


def files() -> dict[str, str]:
    """The generated files: their path in the folder, and their text."""
    documents = {f"schemas/{file_name(kind)}": schema(kind) for kind in KINDS}
    documents["asyncapi.json"] = asyncapi.document()
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }


def main(folder: Path = FOLDER) -> int:
    """Write every file that differs. A schema that the code no longer makes stays: messages of it may still wait."""
    for name, text in files().items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            print(f"events: wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
