"""Preflight checks a deployment before traffic does, and changes nothing: ``python -m infra.preflight``.

Preflight signs in as the caller: the app's identity has no right to read the topic's properties, and should have no
such right. So preflight makes its own clients, apart from ``infra.bootstrap``. The rules here are plain functions of
the facts that ``infra.cosmos.inspection`` and ``infra.servicebus.inspection`` have read; those adapters know nothing
of the rules.
"""
