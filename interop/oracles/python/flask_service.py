"""A Flask application that answers with what it has read, as `wsgi` and, through asgiref, `application` (ASGI)."""

from asgiref.wsgi import WsgiToAsgi
from flask import Flask, jsonify, request
from werkzeug.middleware.proxy_fix import ProxyFix

from reading import ORACLE, QUERY, VERSION, header_name, split_host

app = Flask(__name__, static_folder=None)
# Trusts X-Forwarded-Host and X-Forwarded-Prefix, as behind a proxy.
app.wsgi_app = ProxyFix(app.wsgi_app, x_host=1, x_prefix=1)
EVERY = ["GET", "POST", "PUT", "PATCH", "DELETE", "PURGE", "PROPFIND", "QUERY", "OPTIONS"]


def answer(handler, captures):
    return jsonify(
        oracle=ORACLE,
        version=VERSION,
        handler=handler,
        captures=captures,
        method=request.method,
        host=split_host(request.host),
        query={name: request.args[name] for name in QUERY if name in request.args},
        headers={header_name(key): value for key, value in request.environ.items() if key.startswith("HTTP_")},
        trailers={},
    )


def serve(path, handler, methods=EVERY):
    def view(**captures):
        return answer(handler, captures)

    app.add_url_rule(path, handler, view, methods=methods, strict_slashes=False, provide_automatic_options=False)


serve("/orders", "list_orders", ["GET"])
serve("/orders", "create_order", ["POST"])
serve("/admin/users", "admin_users")
serve("/preview", "preview")
serve("/export", "export")
serve("/files/<name>", "file")
serve("/tenant", "tenant")
serve("/search", "search")
serve("/article", "article")
serve("/beta", "beta")
serve("/site", "site")
serve("/cache", "cache")
serve("/public", "public")
serve("/Reports/Q3", "report")


@app.errorhandler(404)
@app.errorhandler(405)
def unknown(error):
    return answer("none", {})


wsgi = app
application = WsgiToAsgi(app)
