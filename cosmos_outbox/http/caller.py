"""Who sends a request, as far as the platform vouches for it; only a digest of that leaves this module.

App Service authentication sets ``WEBSITE_AUTH_ENABLED`` to True in the app's environment
(https://github.com/AzureAD/microsoft-identity-web, AppServicesAuthenticationInformation.cs). Then no request from
outside can set the principal headers
(https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities). Where that is off anybody can
send these headers, and they are ignored.
"""

from urllib.parse import parse_qsl, urlsplit

from cosmos_outbox.http.message import Request
from cosmos_outbox.outbox.idempotency import digest

ANONYMOUS = "anonymous"


def principal(request: Request, *, platform_authenticates: bool, who: str | None = None) -> str | None:
    """Who has signed in; None: nobody, as far as the platform and the program know.

    ``platform_authenticates``: whether the platform, not the caller, writes the principal headers. ``who``: as the
    program's own authentication says.
    """
    if who is not None:
        return digest(f"program {who}")
    if platform_authenticates and (given := request.headers.get("x-ms-client-principal-id")):
        return digest(f"principal {request.headers.get('x-ms-client-principal-idp', '')} {given}")
    return None


def caller(request: Request, *, platform_authenticates: bool, who: str | None = None) -> str:
    """The principal, else the function key, else nobody in particular.

    The host looks for the key in the same two places, the header first; of two in the query the first counts, and the
    parameter's name may be in any case (azure-functions-host, AuthenticationLevelHandler.cs).
    """
    if signed_in := principal(request, platform_authenticates=platform_authenticates, who=who):
        return signed_in
    if key := request.headers.get("x-functions-key") or _code(request):
        return digest(f"key {key}")
    return ANONYMOUS


def _code(request: Request) -> str | None:
    given = parse_qsl(urlsplit(request.url).query)
    return next((value for name, value in given if name.lower() == "code"), None)
