"""Whether a deployment keeps what the promises rest on, before traffic finds out: ``python -m infra.preflight``.

Preflight reads and changes nothing, and asks with the caller's own sign-in: the app's identity has no right to read
the topic's properties, and should have none. So it makes clients of its own, apart from ``infra.bootstrap``. The rules
here are plain functions of what ``infra.cosmos.inspection`` and ``infra.servicebus.inspection`` have read; those
adapters know nothing of the rules.
"""
