"""Writes ``docs/use/openapi.json``, the answer of ``GET /api/openapi.json``; a test compares the two."""

from tools.required import require

if __name__ == "__main__":
    require("openapi")

import asyncio
import json
from pathlib import Path

from cosmos_outbox.testing import call

FILE = Path(__file__).resolve().parents[2] / "docs" / "use" / "openapi.json"


def text() -> str:
    """Returns the text that the file should have."""
    from function_app import app  # noqa: PLC0415 - lists the functions of the service

    answer = asyncio.run(call(app, "GET", "/api/openapi.json"))
    return json.dumps(json.loads(answer.get_body()), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"openapi: wrote {FILE.name}")
