"""A page of another origin may call the app if the host is configured so, and is answered as by ASP.NET Core.

``func start`` and, on Linux, the host in Azure put ASP.NET Core's middleware before the functions, with any header and
any method allowed. A preflight request never reaches a function. Which headers of an answer a page may read is for the
app to say: the middleware adds nothing to ``Access-Control-Expose-Headers`` and takes nothing away.
https://github.com/Azure/azure-functions-core-tools/blob/main/src/Cli/func/Actions/HostActions/Startup.cs
https://github.com/dotnet/aspnetcore/blob/main/src/Middleware/CORS/src/Infrastructure/CorsService.cs
"""

from dataclasses import dataclass
from typing import Self

from aiohttp import web

from devstack.service import CannotStart

ANY = "*"


@dataclass(frozen=True)
class Cors:
    """The origins whose pages may call."""

    origins: tuple[str, ...]
    credentials: bool

    @classmethod
    def parsed(cls, origins: str, *, credentials: bool) -> Self | None:
        """Origins with commas and no spaces between them; None: there is none. Raises CannotStart."""
        found = tuple(dict.fromkeys(origin.lower() for origin in origins.split(",") if origin))
        if found == (ANY,) and credentials:
            raise CannotStart(
                "functions: CORS cannot be * together with CORSCredentials; list the origins, or leave credentials out"
            )
        return cls(found, credentials) if found else None

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks whether it may call; None: the request is none of these."""
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or wanted is None or "Origin" not in request.headers:
            return None
        answer = web.Response(status=204)
        if self._is_allowed(request):
            self.allow(request, answer)
            answer.headers["Access-Control-Allow-Methods"] = wanted
            headers = request.headers.getall("Access-Control-Request-Headers", [])
            names = [name.strip() for each in headers for name in each.split(",") if name.strip()]
            if names:
                answer.headers["Access-Control-Allow-Headers"] = ",".join(names)
        return answer

    def allow(self, request: web.Request, answer: web.Response) -> None:
        """Say in an answer that a page of the request's origin may read it, if it may."""
        if not self._is_allowed(request):
            return
        is_any = self.origins == (ANY,)
        answer.headers["Access-Control-Allow-Origin"] = ANY if is_any else request.headers["Origin"]
        if self.credentials:
            answer.headers["Access-Control-Allow-Credentials"] = "true"
        if len(self.origins) > 1:
            answer.headers.add("Vary", "Origin")

    def _is_allowed(self, request: web.Request) -> bool:
        origin = request.headers.get("Origin")
        return origin is not None and (self.origins == (ANY,) or origin in self.origins)
