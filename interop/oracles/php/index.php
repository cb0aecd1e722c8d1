<?php
// A PHP application that answers with what it has read. Every request comes here: from PHP's own server as its router, and
// through lighttpd's rewriting to php-cgi.

$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$method = $_SERVER['REQUEST_METHOD'];
$captures = new stdClass();
$handlers = [
    '/admin/users' => 'admin_users', '/preview' => 'preview', '/export' => 'export', '/tenant' => 'tenant',
    '/article' => 'article', '/beta' => 'beta', '/search' => 'search', '/site' => 'site', '/cache' => 'cache', '/public' => 'public', '/Reports/Q3' => 'report',
];
if (preg_match('#^/files/([^/]+)$#D', $path, $found)) {
    $handler = 'file';
    $captures->name = $found[1];
} elseif ($path === '/orders') {
    $handler = ['GET' => 'list_orders', 'POST' => 'create_order'][$method] ?? 'none';
} else {
    $handler = $handlers[$path] ?? 'none';
}

$query = new stdClass();
foreach (['full', 'full_export', 'q', 'limit', 'note', 'teaser', 'mode'] as $name) {
    if (isset($_GET[$name])) {
        $query->$name = is_string($_GET[$name]) ? $_GET[$name] : json_encode($_GET[$name]);
    }
}
$headers = new stdClass();
foreach ($_SERVER as $key => $value) {
    if (str_starts_with($key, 'HTTP_')) {
        $headers->{strtolower(strtr(substr($key, 5), '_', '-'))} = $value;
    }
}
header('content-type: application/json');
echo json_encode([
    'oracle' => getenv('ORACLE') ?: $_SERVER['ORACLE'],
    'version' => 'PHP ' . PHP_VERSION . ' (' . PHP_SAPI . '), ' . $_SERVER['SERVER_SOFTWARE'],
    'handler' => $handler,
    'captures' => $captures,
    'method' => $method,
    // Trusts X-Forwarded-Host, as behind a proxy.
    'host' => preg_replace('/:\d+$/D', '', $_SERVER['HTTP_X_FORWARDED_HOST'] ?? $_SERVER['HTTP_HOST'] ?? ''),
    'query' => $query,
    'headers' => $headers,
    'trailers' => new stdClass(),
], JSON_INVALID_UTF8_SUBSTITUTE);
