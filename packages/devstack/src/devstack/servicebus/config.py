"""The Config.json of Microsoft's Service Bus emulator declares the entities that exist from the start.

An entity of the data folder stays; one that is declared too takes over what may change; what may not is refused.
 Source of the format: the documentation of the Service Bus emulator.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devstack.service import CannotStart
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.properties import describe
from devstack.servicebus.broker.description import Description, Kind, Rule
from devstack.servicebus.broker.filters import check_rule
from devstack.servicebus.codec.errors import AmqpError


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Sql(_Model):
    sql_expression: str = Field(alias="SqlExpression")


class _CorrelationFilter(_Model):
    content_type: str | None = Field(default=None, alias="ContentType")
    correlation_id: str | None = Field(default=None, alias="CorrelationId")
    label: str | None = Field(default=None, alias="Label")
    message_id: str | None = Field(default=None, alias="MessageId")
    reply_to: str | None = Field(default=None, alias="ReplyTo")
    reply_to_session_id: str | None = Field(default=None, alias="ReplyToSessionId")
    session_id: str | None = Field(default=None, alias="SessionId")
    to: str | None = Field(default=None, alias="To")
    properties: dict[str, Any] = Field(default={}, alias="Properties")


class _RuleProperties(_Model):
    filter_type: str = Field(default="Sql", alias="FilterType")
    sql_filter: _Sql | None = Field(default=None, alias="SqlFilter")
    correlation_filter: _CorrelationFilter | None = Field(default=None, alias="CorrelationFilter")
    action: _Sql | None = Field(default=None, alias="Action")


class _Rule(_Model):
    name: str = Field(alias="Name")
    properties: _RuleProperties = Field(alias="Properties")

    def rule(self) -> Rule:
        """Raises ValueError for a filter outside the supported subset."""
        given = self.properties
        action = None if given.action is None else given.action.sql_expression
        if given.correlation_filter is not None:
            system = given.correlation_filter.model_dump(
                by_alias=True, exclude_none=True, exclude={"properties"}
            )
            rule = Rule(
                name=self.name,
                kind="correlation",
                system=system,
                properties=given.correlation_filter.properties,
            )
        elif given.sql_filter is not None:
            rule = Rule(name=self.name, kind="sql", expression=given.sql_filter.sql_expression)
        else:
            raise ValueError(f"rule {self.name}: a SqlFilter or a CorrelationFilter is needed")
        rule = rule.model_copy(update={"action": action})
        check_rule(rule)
        return rule


class _Entity(_Model):
    name: str = Field(alias="Name", min_length=1, max_length=260)
    properties: dict[str, Any] = Field(default={}, alias="Properties")


class _Subscription(_Entity):
    rules: list[_Rule] = Field(default=[], alias="Rules")


class _Topic(_Entity):
    subscriptions: list[_Subscription] = Field(default=[], alias="Subscriptions")


class _Namespace(_Model):
    name: str = Field(alias="Name")
    queues: list[_Entity] = Field(default=[], alias="Queues")
    topics: list[_Topic] = Field(default=[], alias="Topics")


class _UserConfig(_Model):
    namespaces: list[_Namespace] = Field(alias="Namespaces", min_length=1, max_length=1)
    logging: Any = Field(default=None, alias="Logging")


class _Config(_Model):
    user_config: _UserConfig = Field(alias="UserConfig")


def read_config(path: Path) -> list[Description]:
    """The declared entities, topics before subscriptions. Raises :class:`CannotStart` with the place of the mistake."""
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise CannotStart(
            f"servicebus: cannot read {path}: {error.strerror}; set SERVICEBUS_CONFIG to a Config.json"
        ) from error
    except ValueError as error:
        raise CannotStart(f"servicebus: {path}: Invalid JSON: {error}") from error
    return descriptions_of(config, str(path))


def descriptions_of(config: Any, named: str = "the configuration") -> list[Description]:
    """As :func:`read_config`, of what the file holds."""
    try:
        read = _Config.model_validate(config)
        return _each_once(_descriptions(read.user_config.namespaces[0]))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CannotStart(f"servicebus: {named}: {place or 'the file'}: {first['msg']}") from error
    except ValueError as error:
        raise CannotStart(f"servicebus: {named}: {error}") from error


def _descriptions(namespace: _Namespace) -> Iterator[Description]:
    for queue in namespace.queues:
        yield _described(queue, queue.name, "queue")
    for topic in namespace.topics:
        yield _described(topic, topic.name, "topic")
        for subscription in topic.subscriptions:
            path = f"{topic.name}/subscriptions/{subscription.name}"
            description = _described(subscription, path, "subscription")
            rules = tuple(rule.rule() for rule in subscription.rules)
            yield description.model_copy(update={"rules": rules}) if rules else description


def _each_once(descriptions: Iterator[Description]) -> list[Description]:
    found: dict[str, Description] = {}
    for description in descriptions:
        if found.setdefault(description.path.lower(), description) is not description:
            raise ValueError(f"{description.path} is declared twice")
    return list(found.values())


def _described(entity: _Entity, path: str, kind: Kind) -> Description:
    properties = {
        name: json.dumps(value) if isinstance(value, bool | int) else str(value)
        for name, value in entity.properties.items()
    }
    try:
        return describe(path, kind, properties)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def declare(engine: Engine, descriptions: list[Description]) -> None:
    """Create or update the declared entities. Raises :class:`CannotStart` when a stored one cannot become that."""
    for wanted in descriptions:
        found = engine.namespace.find(wanted.path)
        try:
            if found is None:
                engine.create(
                    wanted.model_copy(update={"created_ms": engine.now(), "updated_ms": engine.now()})
                )
            elif _differs(found.description, wanted):
                engine.update(_updated(found.description, wanted))
        except (AmqpError, ValueError) as error:
            raise CannotStart(
                f"servicebus: {wanted.path}: {error}; set DEVSTACK_DATA to another folder"
            ) from error


def _differs(stored: Description, wanted: Description) -> bool:
    stamps = {"created_ms", "updated_ms"}
    return stored.model_dump(exclude=stamps) != wanted.model_dump(exclude=stamps)


def _updated(stored: Description, wanted: Description) -> Description:
    fixed = ("kind", "requires_session", "requires_duplicate_detection", "partitioned")
    changed = [name for name in fixed if getattr(stored, name) != getattr(wanted, name)]
    if changed:
        raise ValueError(f"the data folder holds it with another {changed[0]}, which cannot change")
    return wanted.model_copy(update={"created_ms": stored.created_ms, "updated_ms": stored.updated_ms})
