"""Who sends a request, as far as the platform vouches for it; only a digest of that leaves this module.

App Service authentication sets ``WEBSITE_AUTH_ENABLED`` to True in the app's environment
(https://github.com/AzureAD/microsoft-identity-web, AppServicesAuthenticationInformation.cs). Then no request from
outside can set the principal headers
(https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities). Where that is off anybody can
send these headers, and they are ignored.
"""

from dataclasses import dataclass

import azure.functions as func

from outbox.idempotency import digest

ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class Callers:
    """Tells the callers of one service apart."""

    platform_authenticates: bool
    """Whether the platform, not the caller, writes the principal headers."""

    def caller(self, request: func.HttpRequest) -> str:
        """The signed-in principal, else the function key, else nobody in particular.

        The host looks for the key in the same two places, the header first.
        """
        if self.platform_authenticates and (principal := request.headers.get("x-ms-client-principal-id")):
            return digest(f"principal {request.headers.get('x-ms-client-principal-idp', '')} {principal}")
        if key := request.headers.get("x-functions-key") or request.params.get("code"):
            return digest(f"key {key}")
        return ANONYMOUS
