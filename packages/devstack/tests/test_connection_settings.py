"""A connection setting is read as the Functions host reads it, or refused in one line that says what to set."""

import pytest

from devstack.connection_settings import COSMOS_ADDRESS, Connection, find_connection
from devstack.service import CannotStart

TEXT, PLACE = (
    "AccountEndpoint=http://127.0.0.1:8081/;AccountKey=a2V5;",
    "https://contoso.documents.azure.com/",
)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, None),
        ({"SHOP": "", "SHOP__accountEndpoint": " "}, None),
        ({"SHOP": TEXT}, Connection("SHOP", TEXT)),
        ({"SHOP__accountEndpoint": PLACE}, Connection("SHOP", address=PLACE)),
        ({"SHOP": TEXT, "SHOP__accountEndpoint": PLACE}, Connection("SHOP", TEXT)),
        ({"AzureWebJobsSHOP": TEXT}, Connection("AzureWebJobsSHOP", TEXT)),
        ({"shop:accountendpoint": PLACE}, Connection("SHOP", address=PLACE)),
        (
            {"SHOP__accountEndpoint": PLACE, "SHOP__credential": "managedidentity", "SHOP__clientId": "me"},
            Connection("SHOP", address=PLACE, managed_identity=True, client_id="me"),
        ),
    ],
)
def test_what_the_host_reads_is_found(values: dict[str, str], found: Connection | None) -> None:
    assert find_connection(values, "SHOP", COSMOS_ADDRESS) == found


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"SHOP__connectionString": TEXT}, "SHOP__connectionString is not read by the triggers: set SHOP to"),
        ({"SHOP": TEXT, "AzureWebJobsSHOP": TEXT}, "remove those that begin with AzureWebJobsSHOP"),
        ({"SHOP__accountEndpoint": PLACE, "shop__ACCOUNTENDPOINT": "x"}, "mean the same to the triggers"),
        ({"SHOP__credential": "managedidentity"}, "set SHOP__accountEndpoint to the service's address"),
        ({"SHOP__accountEndpoint": PLACE, "SHOP__credential": "sas"}, "set it to managedidentity"),
        ({"SHOP__accountEndpoint": PLACE, "SHOP__clientId": "me"}, "set SHOP__credential to managedidentity"),
        ({"SHOP__accountEndpoint": PLACE, "SHOP__clientSecret": "x"}, "SHOP__clientSecret is not read"),
        ({"ConnectionStrings__SHOP": TEXT}, "set SHOP to its value"),
        ({"CUSTOMCONNSTR_SHOP": TEXT}, "make it the app setting SHOP"),
    ],
)
def test_what_it_does_not_read_is_refused(values: dict[str, str], says: str) -> None:
    with pytest.raises(CannotStart) as refused:
        find_connection(values, "SHOP", COSMOS_ADDRESS)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
