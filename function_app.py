"""The contact service's function app: calls on contacts are declared, the search is written by hand.

All other functions are the library's. An HTTP function's name must sort before ``unrouted``, the catch-all.
"""

from cosmos_outbox import functions
from cosmos_outbox.http import READING, Answer, Request, request
from cosmos_outbox.http.listing import next_link
from infra import directory_http as directory
from infra.bootstrap import DIRECTORY, service
from infra.contacts_http import contacts
from infra.directory import CosmosDirectory
from infra.directory_document import DirectoryPage, DirectoryQuery

app = functions.app(service, resources=[contacts])


@app.route(route="directory", methods=READING)
@functions.answering(service, gives=DirectoryPage, query=DirectoryQuery)
async def search_directory(req: Request) -> Answer:
    """GET /directory?name=&email=&company=&city=&country=&sort=&written=&pageSize=&continuationToken=: search it"""
    search, (size, token) = directory.search(req), request.page_request(req, *directory.PARAMETERS)
    kept = service().read_model(DIRECTORY)
    behind = await directory.behind(req, kept)
    page = await CosmosDirectory(kept.listing).search(search, size, token)
    return directory.listed(page, behind, next_link(req, page.continuation_token, *directory.PARAMETERS))
