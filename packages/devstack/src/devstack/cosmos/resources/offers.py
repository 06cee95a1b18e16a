"""Throughput is kept and returned, manual or autoscale; it decides how many physical partitions a new container has."""

import json
import math
import sqlite3
from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import CosmosError, bad_request, no_such_resource, precondition_failed
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources.partitions import scale_out
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage.etag import matches, new_etag
from devstack.cosmos.storage.rid import new_offer_rid
from devstack.cosmos.wire.messages import Answer, Request

DEFAULT_RU = 400
MINIMUM_AUTOSCALE_RU = 1000
SINGLE_PARTITION_RU = 10_000
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits: the most that one physical partition serves."""

NEW_PARTITION_RU = 6_000
"""What the service plans for each partition of a container that is created above that:
https://learn.microsoft.com/azure/cosmos-db/scaling-provisioned-throughput-best-practices"""


@dataclass(frozen=True)
class Throughput:
    """RU/s. ``autoscale`` is the ``offerAutopilotSettings`` object, or None."""

    manual: int | None = None
    autoscale: Json | None = None

    @classmethod
    def of_request(cls, request: Request) -> "Throughput":
        """Raises 400."""
        manual = request.headers.get("x-ms-offer-throughput")
        autoscale = request.headers.get("x-ms-cosmos-offer-autopilot-settings")
        try:
            throughput = cls(int(manual) if manual else None, json.loads(autoscale) if autoscale else None)
        except ValueError as error:
            raise bad_request("The throughput in the request's headers is not valid.") from error
        throughput.check()
        return throughput

    def check(self) -> None:
        """Raises 400 for less than the service's minimum."""
        if self.manual is not None and self.manual < DEFAULT_RU:
            raise _too_little(self.manual, DEFAULT_RU)
        if self.autoscale is None:
            return
        most = self.autoscale.get("maxThroughput")
        if not isinstance(most, int):
            raise bad_request("The autoscale settings must hold maxThroughput, a whole number.")
        if most < MINIMUM_AUTOSCALE_RU:
            raise _too_little(most, MINIMUM_AUTOSCALE_RU)

    @property
    def given(self) -> bool:
        return self.manual is not None or self.autoscale is not None

    @property
    def most(self) -> int:
        if self.autoscale is not None:
            return int(self.autoscale.get("maxThroughput", DEFAULT_RU))
        return self.manual or DEFAULT_RU

    @property
    def partitions(self) -> int:
        if self.most <= SINGLE_PARTITION_RU:
            return 1
        return math.ceil(self.most / NEW_PARTITION_RU)

    def content(self) -> Json:
        content: Json = {"offerThroughput": self.most, "offerIsRUPerMinuteThroughputEnabled": False}
        if self.autoscale is not None:
            content["offerThroughput"] = max(DEFAULT_RU, self.most // 10)
            content["offerAutopilotSettings"] = self.autoscale
        return content


def exists(run: sqlite3.Connection, resource_rid: str) -> bool:
    return run.execute("SELECT 1 FROM offers WHERE resource_rid = ?", (resource_rid,)).fetchone() is not None


def add(
    service: Service, run: sqlite3.Connection, resource_rid: str, link: str, throughput: Throughput
) -> None:
    chance, now = service.store.chance, service.now()
    run.execute(
        "INSERT INTO offers (rid, resource_rid, resource_link, content, etag, timestamp) VALUES (?, ?, ?, ?, ?, ?)",
        (
            new_offer_rid(chance),
            resource_rid,
            link,
            dump_json(throughput.content()),
            new_etag(chance),
            now,
        ),
    )


def read(service: Service, request: Request) -> Answer:
    return _answer(_find(service, request.target.item))


def replace(service: Service, request: Request) -> Answer:
    old = _find(service, request.target.item)
    if_match = request.headers.get("If-Match")
    if if_match is not None and not matches(if_match, old["_etag"]):
        raise precondition_failed()
    content = request.json().get("content")
    if not isinstance(content, dict) or not isinstance(content.get("offerThroughput"), int):
        raise bad_request("The offer's content must hold offerThroughput, a whole number.")
    throughput = Throughput(content["offerThroughput"], content.get("offerAutopilotSettings"))
    throughput.check()
    with service.store.transaction() as run:
        run.execute(
            "UPDATE offers SET content = ?, etag = ?, timestamp = ? WHERE rid = ?",
            (dump_json(content), new_etag(service.store.chance), service.now(), old["_rid"]),
        )
    container = service.catalogue.container_by_rid(old["offerResourceId"])
    if container is not None:
        scale_out(service, container, math.ceil(throughput.most / SINGLE_PARTITION_RU))
    return _answer(_find(service, request.target.item))


def documents(service: Service, _request: Request) -> tuple[str, list[Json]]:
    """The parent's ``_rid``, of which there is none, and every offer, as JSON."""
    return "", [_as_json(row) for row in service.store.connection.execute(f"{_SELECT} ORDER BY number")]


def _too_little(asked: int, least: int) -> CosmosError:
    return bad_request(f"Requested throughput {asked} is less than required minimum throughput {least}.")


_SELECT = "SELECT rid, resource_rid, resource_link, content, etag, timestamp FROM offers"


def _find(service: Service, rid: str) -> Json:
    row = service.store.connection.execute(f"{_SELECT} WHERE rid = ? COLLATE NOCASE", (rid,)).fetchone()
    if row is None:
        raise no_such_resource()
    return _as_json(row)


def _as_json(row: tuple[Any, ...]) -> Json:
    rid, resource_rid, resource_link, content, etag, timestamp = row
    return {
        "resource": resource_link,
        "offerType": "Invalid",
        "offerResourceId": resource_rid,
        "offerVersion": "V2",
        "content": json.loads(content),
        "id": rid,
        "_rid": rid,
        "_self": f"offers/{rid}/",
        "_etag": etag,
        "_ts": timestamp,
    }


def _answer(offer: Json) -> Answer:
    return Answer(200, dump_json(offer), {"etag": offer["_etag"]})
