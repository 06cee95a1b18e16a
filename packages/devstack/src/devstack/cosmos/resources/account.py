"""The account's document sends clients to the address that they came by, with session consistency."""

from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources.service import Service
from devstack.cosmos.wire.messages import Answer, Request


def read(service: Service, _request: Request) -> Answer:
    region = {"name": "devstack", "databaseAccountEndpoint": service.endpoint}
    body: Json = {
        "_self": "",
        "id": "devstack",
        "_rid": "devstack",
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": [region],
        "readableLocations": [region],
        "enableMultipleWriteLocations": service.multiple_writes,
        "userReplicationPolicy": {"asyncReplication": False, "minReplicaSetSize": 1, "maxReplicasetSize": 1},
        "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 1},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": dump_json({"maxSqlQueryInputLength": 262144, "maxJoinsPerSqlQuery": 5}),
    }
    return Answer(200, dump_json(body), {"x-ms-databaseaccount-provisioned-mb": "0"}, charge=0.0)
