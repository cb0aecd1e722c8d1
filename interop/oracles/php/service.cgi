# A CGI program (RFC 3875) that answers with what it has read, in Perl without a library: its own router and query parser.
use strict;
use warnings;

sub decoded {
    my ($text) = @_;
    $text =~ tr/+/ /;
    $text =~ s/%([0-9A-Fa-f]{2})/chr(hex($1))/ge;
    return $text;
}

sub escaped {
    my ($character) = @_;
    return sprintf('\\u%04x', $character) if $character < 0x10000;
    $character -= 0x10000;
    return sprintf('\\u%04x\\u%04x', 0xd800 + ($character >> 10), 0xdc00 + ($character & 0x3ff));
}

sub quoted {
    my ($text) = @_;
    # CGI passes bytes; valid UTF-8 is text.
    utf8::decode($text);
    $text =~ s/([^ !#-\[\]-~])/escaped(ord($1))/ge;
    return "\"$text\"";
}

sub object {
    my ($members) = @_;
    return '{' . join(',', map { quoted($_) . ':' . quoted($members->{$_}) } sort keys %$members) . '}';
}

my %handlers = (
    '/admin/users' => 'admin_users', '/preview' => 'preview', '/export' => 'export', '/tenant' => 'tenant',
    '/article' => 'article', '/beta' => 'beta', '/search' => 'search', '/site' => 'site', '/cache' => 'cache', '/public' => 'public', '/Reports/Q3' => 'report',
);
my $path   = $ENV{PATH_INFO} // '/';
my $method = $ENV{REQUEST_METHOD};
my (%captures, %query, %headers, $handler);
if ($path =~ m{\A/files/([^/]+)\z}) {
    $handler = 'file';
    $captures{name} = $1;
}
elsif ($path eq '/orders') {
    $handler = { GET => 'list_orders', POST => 'create_order' }->{$method} // 'none';
}
else {
    $handler = $handlers{$path} // 'none';
}
# Like CGI.pm: `;` separates like `&`.
for my $member (split /[&;]/, $ENV{QUERY_STRING} // '') {
    my ($name, $value) = split /=/, $member, 2;
    next unless defined $name;
    $name = decoded($name);
    $query{$name} //= decoded($value // '') if $name =~ /\A(?:full|full_export|q|limit|note|teaser|mode)\z/;
}
for my $key (grep { /^HTTP_/ } keys %ENV) {
    my $name = lc substr $key, 5;
    $name =~ tr/_/-/;
    $headers{$name} = $ENV{$key};
}
my $host = $ENV{HTTP_X_FORWARDED_HOST} // $ENV{HTTP_HOST} // '';
$host =~ s/:\d+\z//;
print "Status: 200\r\nContent-Type: application/json\r\n\r\n";
print '{"oracle":', quoted($ENV{ORACLE}), ',"version":', quoted("$ENV{SERVER_SOFTWARE}, Perl $^V"), ',"handler":', quoted($handler), ',"captures":', object(\%captures),
    ',"method":', quoted($method), ',"host":', quoted($host), ',"query":', object(\%query), ',"headers":', object(\%headers),
    ',"trailers":{}}';
