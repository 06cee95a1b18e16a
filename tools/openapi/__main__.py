"""``docs/use/openapi.json`` is what the code says: this command writes it, a test compares it with the running app."""

from cosmos_outbox.cli import installed

if __name__ == "__main__":
    installed.require("openapi")

import json
from pathlib import Path

from tools.openapi.document import document

FILE = Path(__file__).resolve().parents[2] / "docs" / "use" / "openapi.json"


def text() -> str:
    """The file, as it should be."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"openapi: wrote {FILE.name}")
