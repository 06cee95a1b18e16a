"""Formats the findings of preflight, one line each, and computes an exit code for a pipeline."""

from collections.abc import Awaitable, Iterable
from datetime import timedelta
from enum import Enum

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import CannotCheck, Denied, UnusableConnection

ALL_RIGHT, SOMETHING_WRONG, COULD_NOT_CHECK = 0, 1, 2
"""Exit codes. Anything that could not be checked is not right: a pipeline must not continue."""


class Status(Enum):
    """The first word of a line."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``fix``: the remedy if it is not right."""

    status: Status
    subject: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.status.value:<8} {self.subject}: {self.text}"
        return f"{line}. Fix: {self.fix}" if self.fix else line


@dataclass(frozen=True)
class Subject:
    """A part of the deployment that is checked; each method returns the finding of one check."""

    name: str

    def ok(self, text: str) -> Finding:
        """Returns a finding for a check that passed."""
        return Finding(Status.OK, self.name, text)

    def warning(self, text: str, fix: str) -> Finding:
        """Returns a finding for something that works, at a cost."""
        return Finding(Status.WARNING, self.name, text, fix)

    def wrong(self, text: str, fix: str) -> Finding:
        """Returns a finding for a guarantee that does not hold."""
        return Finding(Status.WRONG, self.name, text, fix)

    def unknown(self, text: str, fix: str) -> Finding:
        """Returns a finding for something that could not be checked."""
        return Finding(Status.UNKNOWN, self.name, text, fix)


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns the exit code: "wrong" takes precedence over "unknown"; a warning alone does not fail."""
    seen = {finding.status for finding in findings}
    if Status.WRONG in seen:
        return SOMETHING_WRONG
    return COULD_NOT_CHECK if Status.UNKNOWN in seen else ALL_RIGHT


def summary(findings: Iterable[Finding]) -> str:
    """Returns the last line: the number of findings of each status."""
    statuses = [finding.status for finding in findings]
    counts = ((status, statuses.count(status)) for status in Status)
    return ", ".join(f"{count} {status.value}" for status, count in counts if count)


def written(duration: timedelta) -> str:
    """Returns a duration as text, in the largest unit that leaves no fraction."""
    seconds = round(duration.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_ROLES_TAKE_TIME = "a new role takes some minutes to work"


@dataclass(frozen=True)
class Access:
    """The texts of findings for a service that refuses a call, does not answer, or has an unusable connection."""

    service: str
    place: str
    """The service's term for the target of a connection: account, namespace."""
    setting: str
    address_setting: str
    address: str
    role: str
    key: str

    def denied(
        self, connection: Connection, error: Denied, scope: str, subject: Subject | None = None
    ) -> Finding:
        """Returns the finding for a caller that is authenticated and refused; ``subject``: None: the service."""
        fix = (
            f"{self.key} in {self.setting}, or set {self.address_setting} instead, to use an identity"
            if connection.connection_string
            else f"give the identity that runs preflight the role {self.role} on {scope} ({_ROLES_TAKE_TIME}), or let "
            "this machine through the firewall if the text says so"
        )
        return (subject or Subject(self.service)).wrong(f"access is denied: {error}", fix)

    def unanswered(self, connection: Connection, error: CannotCheck) -> Finding:
        """Returns the finding for a service that gave no usable answer about the deployment."""
        service, has_key = Subject(self.service), connection.connection_string
        if not isinstance(error, UnusableConnection):
            setting, sign_in = (
                (self.setting, "") if has_key else (self.address_setting, "; sign in (az login)")
            )
            return service.unknown(
                str(error),
                f"check that {setting} names the right {self.place}, and that this machine may reach it "
                f"(firewall, private endpoint){sign_in}",
            )
        if has_key:
            return service.unknown(
                f"{self.setting} holds no connection string that can be used: a part is missing, or its key is damaged",
                f"copy the connection string of the {self.place} into {self.setting} again, or remove {self.setting} "
                f"and set {self.address_setting} to use an identity",
            )
        return service.unknown(
            f"{self.address_setting} holds no address that can be used",
            f"set {self.address_setting} to the address of the {self.place}, such as {self.address}",
        )


async def try_as_app(call: Awaitable[object], subject: Subject, role: str) -> Finding:
    """Check that the credential of this run may make one of the app's calls."""
    try:
        await call
    except Denied as error:
        return subject.wrong(
            f"the app is denied access: {error}",
            f"give the app's identity the role {role} on the {subject.name} ({_ROLES_TAKE_TIME}), "
            "or put a key with that right in the app's settings",
        )
    except CannotCheck as error:
        return subject.unknown(
            f"it is not known whether the app may use the {subject.name}: the service {error}",
            "repair what the other lines say, then run preflight again",
        )
    return subject.ok(f"may be used as the role {role} allows")
