"""Accounts whose e-mail address no other has: each address is an aggregate, reserved before its account is made."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Self
from uuid import UUID

from cosmos_outbox import (
    Aggregate,
    AggregateState,
    DomainEvent,
    Event,
    Names,
    Origin,
    Receipt,
    Service,
    Timestamp,
    WireModel,
    utc_now,
)
from cosmos_outbox.errors import AlreadyExists, ReactionRefused


class EmailTaken(Exception):
    """Another account has this e-mail address."""

    field = "email"
    """The field that the answer names in ``errors``."""


def login_of(email: str) -> str:
    """Returns the id of an address's login, from which nobody can read the address."""
    return hmac.digest(b"a secret of yours", email.strip().casefold().encode(), "sha256").hex()


class LoginState(AggregateState):
    """Whose address it is."""

    id: str
    created_at: Timestamp
    owner: UUID | None = None
    free_at: Timestamp | None = None
    """The end of a reservation; None: the address is free, or its account exists."""


class LoginMoved(DomainEvent):
    """The address belongs to another account, or to none."""

    action: Literal["LoginMoved"] = "LoginMoved"
    login_id: str
    owner: UUID | None


class Login(Aggregate[LoginState]):
    """One address. It is never deleted: an id is used once, and the address may be wanted again."""

    aggregate_type: ClassVar[str] = "login"
    state_type: ClassVar[type[AggregateState]] = LoginState
    created_event: ClassVar[type[DomainEvent]] = LoginMoved

    @classmethod
    def reserve(cls, login: str, owner: UUID, *, at: datetime) -> Self:
        """Reserves an address that nobody had before."""
        state = LoginState(id=login, created_at=at, owner=owner, free_at=at + timedelta(hours=1))
        return cls(state, is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The login's id."""
        return self.state.id

    def take(self, owner: UUID, *, at: datetime) -> None:
        """Reserves an address that is free again. Raises EmailTaken."""
        if self.state.owner not in (None, owner):
            raise EmailTaken("another account has this e-mail address")
        if self.state.owner is None:
            self._move(owner, at + timedelta(hours=1), at)

    def confirm(self, owner: UUID, *, at: datetime) -> None:
        """Keeps the address for an account that exists, even if its reservation has ended. Raises ReactionRefused."""
        if self.state.owner not in (None, owner):
            raise ReactionRefused("the address went to another account: this one was stored too late")
        if self.state.owner is None or self.state.free_at is not None:
            self._move(owner, None, at)

    def free(self, owner: UUID, *, at: datetime) -> None:
        """Frees the address of a closed account."""
        if self.state.owner == owner:
            self._move(None, None, at)

    @property
    def due(self) -> datetime | None:
        """The end of the reservation."""
        return self.state.free_at

    def on_due(self, *, at: datetime) -> None:
        """No account came of it."""
        self._move(None, None, at)

    def _move(self, owner: UUID | None, free_at: datetime | None, at: datetime) -> None:
        self._raise(
            lambda sequence: LoginMoved(
                login_id=self.state.id, owner=owner, created_at=at, sequence=sequence
            ),
            owner=owner,
            free_at=free_at,
        )


class NewAccount(WireModel):
    """What a customer gives."""

    email: str


class AccountState(NewAccount, AggregateState):
    """An account as it is stored."""

    id: UUID
    created_at: Timestamp
    login: str
    deleted: bool = False
    deleted_at: Timestamp | None = None


class AccountOpened(DomainEvent):
    """The account exists."""

    action: Literal["AccountOpened"] = "AccountOpened"
    account_id: UUID
    login: str


class AccountClosed(DomainEvent):
    """The account is deleted, and its address is free."""

    action: Literal["AccountClosed"] = "AccountClosed"
    account_id: UUID
    login: str


class Account(Aggregate[AccountState]):
    """A customer's account."""

    aggregate_type: ClassVar[str] = "account"
    state_type: ClassVar[type[AggregateState]] = AccountState
    created_event: ClassVar[type[DomainEvent]] = AccountOpened
    changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {"deleted": AccountClosed}
    kept_after_deletion: ClassVar[Sequence[str]] = ("login",)

    @property
    def aggregate_id(self) -> str:
        """The account's id."""
        return str(self.state.id)

    @property
    def deleted(self) -> bool:
        """Whether the account is closed."""
        return self.state.deleted

    def close(self, *, at: datetime) -> None:
        """Deletes the account."""
        self._set("deleted", True, at)


service = Service(
    "accounts",
    aggregates=[Account, Login],
    names=Names(database="accounts", container="accounts", topic="account-events"),
)


@service.reaction(
    "login-accounts", of=Account, to=Login, target=lambda event: event.data["login"], order="newest"
)
def follow(login: Login | None, event: Event) -> None:
    """An account that was stored keeps its address, and one that was closed frees it."""
    if login is None:
        return
    change = login.free if event.action == "AccountClosed" else login.confirm
    change(UUID(event.aggregate.id), at=event.created_at)


async def sign_up(new: NewAccount, account_id: UUID, origin: Origin) -> Receipt[Account]:
    """Stores a new account. A repetition has the same ``account_id``, and so finds its own reservation.

    Raises:
        EmailTaken: another account has the address.
        AlreadyExists: the account was stored by an earlier attempt.
    """
    login, aggregates, at = login_of(new.email), service().aggregates, utc_now()
    try:
        await aggregates.create(Login.reserve(login, account_id, at=at), origin)
    except AlreadyExists:
        await aggregates.change(Login, login, lambda each: each.take(account_id, at=at), origin)
    state = AccountState(email=new.email, id=account_id, created_at=at, login=login)
    return await aggregates.create(Account(state, is_new=True), origin)
