"""A service that refuses a call, does not answer or cannot be asked is told in words that say what to do."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cosmos_outbox.preflight.report import Finding, ok, unknown, wrong
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.inspection import CannotCheck, Denied, UnusableConnection

_ROLES_TAKE_TIME = "a new role takes some minutes to work"


@dataclass(frozen=True)
class Access:
    """The words for a service that refuses a call, does not answer, or cannot be asked."""

    service: str
    place: str
    """The service's word for the target of a connection: account, namespace."""
    setting: str
    address_setting: str
    address: str
    role: str
    key: str

    def denied(self, connection: Connection, subject: str, error: Denied, scope: str) -> Finding:
        """The caller is known, and refused."""
        fix = (
            f"{self.key} in {self.setting}, or set {self.address_setting} instead, to use an identity"
            if connection.connection_string
            else f"give the identity that runs preflight the role {self.role} on {scope} ({_ROLES_TAKE_TIME}), or let "
            "this machine through the firewall if the text says so"
        )
        return wrong(subject, f"access is denied: {error}", fix)

    def unanswered(self, connection: Connection, error: CannotCheck) -> Finding:
        """There was no answer that tells about the deployment."""
        if isinstance(error, UnusableConnection):
            return self._unusable(connection)
        setting, sign_in = (
            (self.setting, "")
            if connection.connection_string
            else (self.address_setting, "; sign in (az login)")
        )
        return unknown(
            self.service,
            str(error),
            f"check that {setting} names the right {self.place}, and that this machine may reach it "
            f"(firewall, private endpoint){sign_in}",
        )

    def _unusable(self, connection: Connection) -> Finding:
        if connection.connection_string:
            return unknown(
                self.service,
                f"{self.setting} holds no connection string that can be used: a part is missing, or its key is damaged",
                f"copy the connection string of the {self.place} into {self.setting} again, or remove {self.setting} "
                f"and set {self.address_setting} to use an identity",
            )
        return unknown(
            self.service,
            f"{self.address_setting} holds no address that can be used",
            f"set {self.address_setting} to the address of the {self.place}, such as {self.address}",
        )


async def try_as_app(call: Callable[[], Awaitable[object]], subject: str, role: str) -> Finding:
    """Whether the credential of this run may make the call that the app makes."""
    try:
        await call()
    except Denied as error:
        return wrong(
            subject,
            f"the app is denied access: {error}",
            f"give the app's identity the role {role} on the {subject} ({_ROLES_TAKE_TIME}), "
            "or put a key with that right in the app's settings",
        )
    except CannotCheck as error:
        return unknown(
            subject,
            f"it is not known whether the app may use the {subject}: the service {error}",
            "repair what the other lines say, then run preflight again",
        )
    return ok(subject, f"may be used as the role {role} allows")
