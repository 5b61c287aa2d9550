#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The release archive of a commit (second argument, HEAD by default) in a folder (first argument, build/dist by default):
# octile-<version>.tar.gz and its SHA-256. One commit gives the same bytes wherever and whenever: times are the commit's, and
# gzip writes none of its own.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/dist}
commit=${2:-HEAD}
version=$(git show "$commit:CMakeLists.txt" | sed -n 's/^project(octile VERSION \([0-9.]*\).*/\1/p')
mkdir -p "$folder"
archive=octile-$version.tar.gz
# The settings of whoever runs this must not reach the bytes.
git -c core.autocrlf=false -c tar.umask=0022 archive --format=tar --prefix="octile-$version/" "$commit" | gzip -n -9 >"$folder/$archive"
(cd "$folder" && sha256sum "$archive" | tee "$archive.sha256")
