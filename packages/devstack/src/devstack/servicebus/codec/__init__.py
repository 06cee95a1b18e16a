"""AMQP 1.0 on the wire: types, performatives, message sections, frames. No state, no I/O; every size is bounded.

Source of every code and default in here: OASIS AMQP 1.0, parts 1 (types), 2 (transport), 3 (messaging), 5 (security).
"""
