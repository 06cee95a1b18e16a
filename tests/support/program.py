"""``python -m tests.support.program TEXT ...``: runs the text as a program, as ``python -c`` does."""

import sys

if __name__ == "__main__":
    exec(sys.argv.pop(1), {"__name__": "__main__"})
