"""The calls on contacts and on the directory: each parses, calls and answers. All other functions are the library's.

The name of an HTTP function sorts before ``unrouted``, which takes what no other function takes.
"""

import azure.functions as func

from cosmos_outbox import functions
from cosmos_outbox.http import READING, request, responses
from infra import contacts_http as contacts
from infra import directory_http as directory
from infra.bootstrap import application, service
from infra.contacts_http import answering

app = functions.app(service)


@app.route(route="contacts", methods=["POST"])
@answering.honouring("Idempotency-Key")
async def create_contact(req: func.HttpRequest) -> func.HttpResponse:
    """POST /contacts: create a contact"""
    details, key = contacts.contact_details(req), request.idempotency_key(req)
    service, origin = application().contacts, request.origin(req)
    if key is None:
        return contacts.resource.created(await service.create(details, origin))
    keyed = request.keyed(req, application().settings, key)
    receipt, replayed = await service.create_once(details, origin, keyed)
    return contacts.resource.created(receipt, replayed=replayed)


@app.route(route="contacts", methods=READING)
@answering
async def list_contacts(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts?pageSize=&continuationToken=: list contacts, a page a call"""
    size, token = request.page_request(req)
    return contacts.resource.listed(await application().contacts.page(size, token, request.origin(req)))


@app.route(route="contacts/{id}", methods=READING)
@answering.honouring("If-None-Match")
async def get_contact(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts/{id}: read a contact; Cache-Control: no-cache asks for no older state than that of the call"""
    contact_id, newest = contacts.contact_id(req), request.wants_newest(req)
    found = await application().contacts.read(contact_id, request.origin(req), newest=newest)
    return contacts.resource.found(req, found)


@app.route(route="contacts/{id}", methods=["PATCH"])
@answering.honouring("If-Match")
async def patch_contact(req: func.HttpRequest) -> func.HttpResponse:
    """PATCH /contacts/{id}: change a contact with a JSON Merge Patch (RFC 7396)"""
    contact_id, revision, versions = contacts.contact_id(req), contacts.revision(req), request.if_match(req)
    service, origin = application().contacts, request.origin(req)
    return contacts.resource.changed(await service.revise(contact_id, revision, origin, if_match=versions))


@app.route(route="contacts/{id}", methods=["DELETE"])
@answering.honouring("If-Match")
async def delete_contact(req: func.HttpRequest) -> func.HttpResponse:
    """DELETE /contacts/{id}: delete a contact"""
    contact_id, versions = contacts.contact_id(req), request.if_match(req)
    await application().contacts.delete(contact_id, request.origin(req), if_match=versions)
    return responses.no_content()


@app.route(route="directory", methods=READING)
@answering
async def search_directory(req: func.HttpRequest) -> func.HttpResponse:
    """GET /directory?name=&email=&company=&city=&country=&sort=&pageSize=&continuationToken=: search the directory"""
    search, (size, token) = directory.search(req), request.page_request(req, *directory.PARAMETERS)
    return directory.listed(await application().directory.search(search, size, token))
