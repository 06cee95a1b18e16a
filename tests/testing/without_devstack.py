"""Prints, for each name of the kit, the error that a reader without devstack gets. For a process of its own."""

import importlib
import sys

for each in [name for name in sys.modules if name.startswith("cosmos_outbox")]:
    del sys.modules[each]
for each in ["devstack", *(name for name in sys.modules if name.startswith("devstack."))]:
    sys.modules[each] = None  # type: ignore[assignment]  # so Python says that there is none

testing = importlib.import_module("cosmos_outbox.testing")

for each in testing.__all__:
    try:
        getattr(testing, each)
    except ImportError as error:
        print(each, error)
