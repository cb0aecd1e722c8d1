"""A Django application that answers with what it has read, as `application` (ASGI) and `wsgi` (WSGI)."""

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import re_path

from reading import ORACLE, QUERY, VERSION, header_name, split_host

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not a secret",
    # Trusts X-Forwarded-Host, as behind a proxy.
    USE_X_FORWARDED_HOST=True,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
django.setup()


def answer(request, handler, captures):
    return JsonResponse(
        {
            "oracle": ORACLE,
            "version": VERSION,
            "handler": handler,
            "captures": captures,
            "method": request.method,
            "host": split_host(request.get_host()),
            "query": {name: request.GET[name] for name in QUERY if name in request.GET},
            "headers": {header_name(key): value for key, value in request.META.items() if key.startswith("HTTP_")},
            "trailers": {},
        }
    )


def reading(handler):
    def view(request, format=None, **captures):
        return answer(request, handler, captures)

    return view


def orders(request, format=None):
    handlers = {"GET": "list_orders", "HEAD": "list_orders", "POST": "create_order"}
    return answer(request, handlers.get(request.method, "none"), {})


# An optional format suffix and a trailing slash, as in Django REST framework's routers and format_suffix_patterns.
REST = r"(?:\.(?P<format>[a-z0-9]+))?/?$"

urlpatterns = [
    re_path("^orders" + REST, orders),
    re_path("^admin/users" + REST, reading("admin_users")),
    re_path("^preview" + REST, reading("preview")),
    re_path("^export" + REST, reading("export")),
    re_path("^files/(?P<name>[^/]+)$", reading("file")),
    re_path("^tenant" + REST, reading("tenant")),
    re_path("^search" + REST, reading("search")),
    re_path("^article" + REST, reading("article")),
    re_path("^beta" + REST, reading("beta")),
    re_path("^site" + REST, reading("site")),
    re_path("^cache" + REST, reading("cache")),
    re_path("^public" + REST, reading("public")),
    re_path("^Reports/Q3" + REST, reading("report")),
]


def handler404(request, exception):
    return answer(request, "none", {})


application = get_asgi_application()
wsgi = get_wsgi_application()
