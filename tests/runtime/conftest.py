"""The runtime needs Python 3.13 or later; with an older Python the run's header says that these tests do not run."""

import sys

collect_ignore_glob = [] if sys.version_info >= (3, 13) else ["test_*.py"]
