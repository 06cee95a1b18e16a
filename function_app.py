"""The calls on contacts and on the directory: each parses, calls and answers. All other functions are the library's.

The name of an HTTP function sorts before ``unrouted``, which takes what no other function takes.
"""

from cosmos_outbox import functions
from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.http import READING, Answer, Request, request
from infra import contacts_http as contacts
from infra import directory_http as directory
from infra.bootstrap import application, service

app = functions.app(service)
answering = HttpFunctions(contacts.answering)


@app.route(route="contacts", methods=["POST"])
@answering.honouring("Idempotency-Key")
async def create_contact(req: Request) -> Answer:
    """POST /contacts: create a contact"""
    details, key = contacts.contact_details(req), request.idempotency_key(req)
    service, origin = application().contacts, request.origin(req)
    if key is None:
        return contacts.shown.created(req, await service.create(details, origin))
    keyed = request.keyed(req, application().settings, key)
    receipt, replayed = await service.create_once(details, origin, keyed)
    return contacts.shown.created(req, receipt, replayed=replayed)


@app.route(route="contacts", methods=READING)
@answering
async def list_contacts(req: Request) -> Answer:
    """GET /contacts?pageSize=&continuationToken=: list contacts, a page a call"""
    size, token = request.page_request(req)
    return contacts.shown.listed(await application().contacts.page(size, token, request.origin(req)))


@app.route(route="contacts/{id}", methods=READING)
@answering.honouring("If-None-Match")
async def get_contact(req: Request) -> Answer:
    """GET /contacts/{id}: read a contact; Cache-Control: no-cache asks for no older state than that of the call"""
    contact_id, newest = contacts.contact_id(req), request.wants_newest(req)
    found = await application().contacts.read(contact_id, request.origin(req), newest=newest)
    return contacts.shown.found(req, found)


@app.route(route="contacts/{id}", methods=["PATCH"])
@answering.honouring("If-Match", "Idempotency-Key")
async def patch_contact(req: Request) -> Answer:
    """PATCH /contacts/{id}: change a contact with a JSON Merge Patch (RFC 7396)"""
    contact_id, revision, versions = contacts.contact_id(req), contacts.revision(req), request.if_match(req)
    service, origin, keyed = application().contacts, request.origin(req), contacts.keyed_change(req)
    if keyed is None:
        return contacts.shown.changed(await service.revise(contact_id, revision, origin, if_match=versions))
    answered = await service.revise_once(contact_id, revision, origin, keyed, if_match=versions)
    return contacts.shown.answered(str(contact_id), answered)


@app.route(route="contacts/{id}", methods=["DELETE"])
@answering.honouring("If-Match", "Idempotency-Key")
async def delete_contact(req: Request) -> Answer:
    """DELETE /contacts/{id}: delete a contact"""
    contact_id, versions = contacts.contact_id(req), request.if_match(req)
    service, origin, keyed = application().contacts, request.origin(req), contacts.keyed_change(req)
    if keyed is None:
        await service.delete(contact_id, origin, if_match=versions)
        return contacts.shown.deleted()
    answered = await service.delete_once(contact_id, origin, keyed, if_match=versions)
    return contacts.shown.deleted(replayed=answered.replayed)


@app.route(route="directory", methods=READING)
@answering
async def search_directory(req: Request) -> Answer:
    """GET /directory?name=&email=&company=&city=&country=&sort=&pageSize=&continuationToken=: search the directory"""
    search, (size, token) = directory.search(req), request.page_request(req, *directory.PARAMETERS)
    return directory.listed(await application().directory.search(search, size, token))
