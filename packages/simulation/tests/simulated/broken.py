"""The contact service with a bug planted at its edge: what could not be stored is answered as if it had been."""

from dataclasses import replace

from cosmos_outbox.outbox.errors import Unavailable
from simulated.contacts import CONTACTS

BROKEN = replace(CONTACTS, errors={**CONTACTS.errors, Unavailable: 200}, over=("servicebus",))
