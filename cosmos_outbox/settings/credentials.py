"""A connection without a connection string uses a managed identity or a developer's own sign-in."""

from azure.core.credentials_async import AsyncTokenCredential

from cosmos_outbox.settings.connections import Connection

Credential = AsyncTokenCredential


def credential_for(connection: Connection) -> Credential | None:
    """The credential of a connection, made without any I/O; None when the connection has a connection string."""
    if connection.connection_string:
        return None
    from azure.identity.aio import (  # noqa: PLC0415 - slow to import, and not needed with connection strings
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    if connection.managed_identity_only:
        return ManagedIdentityCredential(client_id=connection.client_id)
    return DefaultAzureCredential()
