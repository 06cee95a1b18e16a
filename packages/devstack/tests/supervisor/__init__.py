"""The ``devstack`` command with an app of its own: settings, processes, ends. None of it knows another app."""
