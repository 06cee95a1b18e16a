"""The meaning of connection settings: one table of cases for every reader of settings.

A case is written for a setting ``NAME`` whose service is found at the part ``ADDRESS``, and holds for both services. A
setting that both extensions of the Functions host read alike is accepted; every other setting is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Found:
    """The connection, and the setting that decides about it."""

    setting: str
    connection_string: str | None = None
    address: str = ""
    managed_identity: bool = False
    client_id: str | None = None


@dataclass(frozen=True)
class Refused:
    """No reader may go on. The one line that says so has these words: what is wrong, and what to set instead."""

    named: tuple[str, ...]


@dataclass(frozen=True)
class Unset:
    """Nothing says where the service is. The local stack starts one of its own; all others refuse."""


Expected = Found | Refused | Unset


@dataclass(frozen=True)
class Service:
    """A service that is connected by a setting. Its text and its place are on this machine, where devstack runs it."""

    name: str
    address: str
    text: str
    place: str


SERVICES = (
    Service(
        "COSMOS",
        "accountEndpoint",
        text="AccountEndpoint=http://127.0.0.1:8081/;AccountKey=a2V5;",
        place="https://127.0.0.1:8081/",
    ),
    Service(
        "SERVICEBUS",
        "fullyQualifiedNamespace",
        text="Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;",
        place="localhost",
    ),
)

CASES: Mapping[str, tuple[Mapping[str, str], Expected]] = {
    "nothing": ({}, Unset()),
    "empty": ({"NAME": "", "NAME__ADDRESS": ""}, Unset()),
    "blank": ({"NAME": " "}, Unset()),
    "settings of other names": (
        {
            "NAME_DATABASE": "x",
            "NAMES": "x",
            "AzureWebJobsStorage__clientId": "x",
            "CUSTOMCONNSTR_OTHER": "x",
        },
        Unset(),
    ),
    # the forms
    "connection string": ({"NAME": "TEXT"}, Found("NAME", "TEXT")),
    "address": ({"NAME__ADDRESS": "PLACE"}, Found("NAME", address="PLACE")),
    "managed identity": (
        {"NAME__ADDRESS": "PLACE", "NAME__credential": "ManagedIdentity"},
        Found("NAME", address="PLACE", managed_identity=True),
    ),
    "user-assigned identity": (
        {"NAME__ADDRESS": "PLACE", "NAME__credential": "managedidentity", "NAME__clientId": "the-client"},
        Found("NAME", address="PLACE", managed_identity=True, client_id="the-client"),
    ),
    "the prefix of the host": ({"AzureWebJobsNAME": "TEXT"}, Found("AzureWebJobsNAME", "TEXT")),
    "the prefix of the host, with an identity": (
        {"AzureWebJobsNAME__ADDRESS": "PLACE", "AzureWebJobsNAME__credential": "managedidentity"},
        Found("AzureWebJobsNAME", address="PLACE", managed_identity=True),
    ),
    # as .NET reads its environment
    "another spelling": (
        {"name:address": "PLACE", "Name__CREDENTIAL": "managedidentity"},
        Found("NAME", address="PLACE", managed_identity=True),
    ),
    "a connection string in another spelling": ({"name": "TEXT"}, Found("name", "TEXT")),
    "an empty credential": (
        {"NAME__ADDRESS": "PLACE", "NAME__credential": "", "NAME__clientId": " "},
        Found("NAME", address="PLACE"),
    ),
    "two spellings that differ": (
        {"NAME__ADDRESS": "PLACE", "name__address": "elsewhere"},
        Refused(("NAME__ADDRESS", "name__address")),
    ),
    # what beats what
    "a connection string beats an address": (
        {"NAME": "TEXT", "NAME__ADDRESS": "elsewhere", "NAME__credential": "managedidentity"},
        Found("NAME", "TEXT"),
    ),
    "a connection string beats what is not read": (
        {"NAME": "TEXT", "NAME__connectionString": "elsewhere", "NAME__tenantId": "x"},
        Found("NAME", "TEXT"),
    ),
    "an empty connection string beats nothing": (
        {"NAME": "", "NAME__ADDRESS": "PLACE"},
        Found("NAME", address="PLACE"),
    ),
    "with the prefix and without": (
        {"NAME": "TEXT", "AzureWebJobsNAME": "TEXT"},
        Refused(("NAME", "AzureWebJobsNAME")),
    ),
    "with the prefix and without, one of them empty": (
        {"NAME": "TEXT", "AzureWebJobsNAME": ""},
        Refused(("NAME", "AzureWebJobsNAME")),
    ),
    "with the prefix a part, without the whole": (
        {"NAME": "TEXT", "AzureWebJobsNAME__credential": "managedidentity"},
        Refused(("NAME", "AzureWebJobsNAME")),
    ),
    # what the triggers do not read
    "a connection string below the name": (
        {"NAME__connectionString": "TEXT"},
        Refused(("NAME__connectionString", "set NAME to")),
    ),
    "a connection string below the prefixed name": (
        {"AzureWebJobsNAME__connectionString": "TEXT"},
        Refused(("AzureWebJobsNAME__connectionString", "set AzureWebJobsNAME to")),
    ),
    "a connection string below the name and an address": (
        {"NAME__connectionString": "TEXT", "NAME__ADDRESS": "PLACE"},
        Refused(("NAME__connectionString", "set NAME to")),
    ),
    "a credential without an address": (
        {"NAME__credential": "managedidentity"},
        Refused(("NAME__credential", "NAME__ADDRESS")),
    ),
    "a client id without an address": (
        {"NAME": "", "NAME__clientId": "the-client"},
        Refused(("NAME__clientId", "NAME__ADDRESS")),
    ),
    "the part of another service": (
        {"NAME__serviceUri": "PLACE"},
        Refused(("NAME__serviceUri", "NAME__ADDRESS")),
    ),
    "an unknown credential": (
        {"NAME__ADDRESS": "PLACE", "NAME__credential": "sas"},
        Refused(("NAME__credential", "managedidentity")),
    ),
    "a client id without a credential": (
        {"NAME__ADDRESS": "PLACE", "NAME__clientId": "the-client"},
        Refused(("NAME__clientId", "NAME__credential", "managedidentity")),
    ),
    # what the triggers read, and the app does not
    "a secret": (
        {
            "NAME__ADDRESS": "PLACE",
            "NAME__credential": "managedidentity",
            "NAME__clientId": "the-client",
            "NAME__clientSecret": "secret",
        },
        Refused(("NAME__clientSecret",)),
    ),
    "an identity by its resource": (
        {
            "NAME__ADDRESS": "PLACE",
            "NAME__credential": "managedidentity",
            "NAME__managedIdentityResourceId": "x",
        },
        Refused(("NAME__managedIdentityResourceId",)),
    ),
    "a section of connection strings": (
        {"ConnectionStrings__NAME": "TEXT"},
        Refused(("ConnectionStrings__NAME", "set NAME to")),
    ),
    "a section of connection strings beside the setting": (
        {"ConnectionStrings:AzureWebJobsNAME": "TEXT", "NAME": "TEXT"},
        Refused(("ConnectionStrings:AzureWebJobsNAME", "set NAME to")),
    ),
    "a connection string of the portal": (
        {"CUSTOMCONNSTR_NAME": "TEXT"},
        Refused(("CUSTOMCONNSTR_NAME", "app setting NAME")),
    ),
}


@dataclass(frozen=True)
class Case:
    """A row of the table, for one of the services."""

    title: str
    service: Service
    environment: Mapping[str, str]
    expected: Expected

    def __str__(self) -> str:
        return f"{self.service.name}: {self.title}"


def all_cases() -> Iterator[Case]:
    """Each row, for each service."""
    for title, (environment, expected) in CASES.items():
        for service in SERVICES:
            yield Case(
                title,
                service,
                {_of(name, service): _of(value, service) for name, value in environment.items()},
                _expected(expected, service),
            )


def _expected(expected: Expected, service: Service) -> Expected:
    match expected:
        case Found():
            return replace(
                expected,
                setting=_of(expected.setting, service),
                connection_string=expected.connection_string and _of(expected.connection_string, service),
                address=_of(expected.address, service),
            )
        case Refused():
            return Refused(tuple(_of(words, service) for words in expected.named))
        case Unset():
            return expected


def _of(text: str, service: Service) -> str:
    """A text of the table, in the words of one service."""
    for word, meant in (
        ("NAME", service.name),
        ("name", service.name.lower()),
        ("Name", service.name.title()),
        ("ADDRESS", service.address),
        ("address", service.address.lower()),
        ("TEXT", service.text),
        ("PLACE", service.place),
    ):
        text = text.replace(word, meant)
    return text
