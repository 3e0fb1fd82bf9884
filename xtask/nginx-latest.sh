#!/bin/sh
# An nginx with aws-lc, for --peer nginx-latest: xtask/nginx-latest.sh NGINX FOLDER [AWS_LC]
# NGINX and AWS_LC are folders with unpacked sources: of nginx's newest release, from
# https://nginx.org/en/download.html, and of aws-lc, from https://github.com/aws/aws-lc/releases. If
# AWS_LC is not given, it is the one that our own libraries are built from (crate aws-lc-sys), so
# that both sides have the same. FOLDER takes what is built. Needs cmake, make, a C compiler and a
# C++ compiler (for aws-lc's libssl), and neither Go nor Perl, as aws-lc brings its assembly. Takes
# two minutes; then, for example:
#   ./x lab compare --peer nginx-latest --peer-binary FOLDER/nginx/nginx --workload warm --json
set -eu
[ $# -ge 2 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
missing=
for tool in cmake make "${CC:-cc}" "${CXX:-c++}"; do
    command -v "${tool%% *}" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || {
    echo "$0: these tools are missing:$missing. On Debian: apt-get install cmake make gcc g++" >&2
    exit 1
}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$2"
nginx=$(cd "$1" && pwd) folder=$(cd "$2" && pwd) aws_lc=${3:-}
if [ -z "$aws_lc" ]; then
    metadata=$(cd "$root" && cargo metadata --format-version 1 --locked)
    aws_lc=$(printf '%s' "$metadata" |
        sed -n 's|.*"manifest_path":"\([^"]*/aws-lc-sys-[^"/]*\)/Cargo.toml".*|\1/aws-lc|p')
fi
[ -e "$aws_lc/CMakeLists.txt" ] || { echo "$0: no aws-lc sources in $aws_lc" >&2; exit 1; }
configure=$nginx/configure
[ -e "$configure" ] || configure=$nginx/auto/configure # A release has the one, git the other.

cmake -S "$aws_lc" -B "$folder/aws-lc-build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$folder/aws-lc" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF \
    -DBUILD_TESTING=OFF -DBUILD_TOOL=OFF -DDISABLE_GO=ON -DDISABLE_PERL=ON
make -C "$folder/aws-lc-build" install
cd "$nginx"
# Without rewrite and gzip, which need more libraries, and serve nothing here.
"$configure" --builddir="$folder/nginx" --prefix="$folder" --with-http_ssl_module --with-threads \
    --with-file-aio --without-http_rewrite_module --without-http_gzip_module \
    --with-cc-opt="-O2 -I$folder/aws-lc/include" --with-ld-opt="-L$folder/aws-lc/lib"
make -f "$folder/nginx/Makefile" -C "$nginx"
"$folder/nginx/nginx" -V
