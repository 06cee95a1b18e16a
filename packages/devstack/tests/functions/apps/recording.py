"""How the functions of the test apps say what they saw: a line of JSON in the file that RECORD names."""

import json
import os
from pathlib import Path


def record(**seen: object) -> None:
    with Path(os.environ["RECORD"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(seen, default=str) + "\n")
