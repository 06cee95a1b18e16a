"""A connection without a connection string uses a managed identity or a developer's own sign-in."""

from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

from infra.connections import Connection

Credential = DefaultAzureCredential | ManagedIdentityCredential


def credential_for(connection: Connection) -> Credential | None:
    """The credential of a connection, made without any I/O; None when the connection has a connection string."""
    if connection.connection_string:
        return None
    if connection.managed_identity_only:
        return ManagedIdentityCredential(client_id=connection.client_id)
    return DefaultAzureCredential()
