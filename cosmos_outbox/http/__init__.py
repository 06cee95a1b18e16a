"""A request becomes a checked value, and a result or an error becomes an answer that says what to do."""

from cosmos_outbox.settings.extras import needed

needed("functions")
