"""The archive is there, what is erased in it can be replaced, and the app may write to it."""

from cosmos_outbox.preflight.report import Finding, ok, unknown, wrong
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.extras import needed
from cosmos_outbox.settings.inspection import CannotCheck, Denied
from cosmos_outbox.settings.subscribing import SubscriberSettings


async def archive(
    settings: Settings | SubscriberSettings, credential: Credential | None, *, as_app: bool
) -> list[Finding]:
    """Nothing, where events are not archived."""
    if not isinstance(settings, Settings) or settings.archive is None:
        return []
    subject = f"archive {settings.archive.container}"
    try:
        needed("archive")
        from cosmos_outbox.blobs.inspection import BlobInspection  # noqa: PLC0415 - not everybody has the package

        inspection = BlobInspection(settings.archive.connection, settings.archive.container, credential)
        found = await inspection.look()
        if found is None:
            return [
                wrong(subject, "does not exist", "create the blob container, or correct ARCHIVE_CONTAINER")
            ]
        if found.immutable:
            return [
                wrong(
                    subject,
                    "has an immutability policy or a legal hold: a blob is filled after it was made, and erasing "
                    "replaces it",
                    "let events be archived to a container without them",
                )
            ]
        if as_app:
            await inspection.try_writing()
        return [ok(subject, "is there" + (", and may be written" if as_app else ""))]
    except Denied as error:
        role = "Storage Blob Data Contributor" if as_app else "Storage Blob Data Reader"
        return [
            wrong(
                subject,
                f"access is denied: {error}",
                f"give the identity the role {role} on it (a new role takes some minutes to work), or let this "
                "machine through the storage account's firewall",
            )
        ]
    except (CannotCheck, Misconfigured) as error:
        return [
            unknown(subject, str(error), "check ARCHIVE, and that this machine may reach the storage account")
        ]
